/** Light and dark: the system's choice unless the reader makes one; and the charts' colours on a dark page. */
import { computed, effect, signal } from "@preact/signals";

export type ThemeChoice = "system" | "light" | "dark";
const KEY = "mobalab-theme";
const media = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(media.matches);
media.addEventListener("change", (event) => {
  systemDark.value = event.matches;
});

function stored(): ThemeChoice {
  // Storage may be closed to a page opened from disk.
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const themeChoice = signal<ThemeChoice>(stored());
export const dark = computed(() =>
  themeChoice.value === "system" ? systemDark.value : themeChoice.value === "dark",
);

effect(() => {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
  try {
    localStorage.setItem(KEY, themeChoice.value);
  } catch {
    // The choice then lasts as long as the page.
  }
});

/** Colours of charts on white paper and what they become on the dark page. */
export const DARK: Readonly<Record<string, string>> = {
  "#ffffff": "#14171b",
  "#1c1f24": "#d9dde2",
  "#5a626c": "#a2abb5",
  "#e3e6ea": "#2a2f36",
  "#c9ced5": "#414953",
  "#8a929c": "#6d7681",
  "#d0222b": "#ff6b6b",
  "#1f4fd0": "#6ea0ff",
  "#008763": "#35c796",
  "#c77700": "#f2b04a",
  "#a64d8f": "#e69ad2",
  "#1593c9": "#79d2f7",
  "#6b5a00": "#cdbf5f",
  "#555555": "#b4b4b4",
};

/** A chart colour as it is drawn on the page that is shown. */
export function shade(colour: string): string {
  if (!dark.value) return colour;
  return DARK[colour.toLowerCase()] ?? inverted(colour);
}

/** Tints of chart colours towards white go towards black. */
function inverted(colour: string): string {
  if (!/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  const channels = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16));
  const light = (Math.max(...channels) + Math.min(...channels)) / 2;
  const target = 255 - light * 0.75;
  const factor = target / Math.max(1, light);
  return `#${channels
    .map((c) => Math.min(255, Math.round(c * factor)))
    .map((c) => c.toString(16).padStart(2, "0"))
    .join("")}`;
}
