/** Light and dark: the system's choice unless the reader makes one. */
import { computed, effect, signal } from "@preact/signals";
import { onDark } from "./palette.ts";

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

/** A chart colour as it is drawn on the page that is shown. */
export function shade(colour: string): string {
  if (!dark.value) return colour;
  return onDark(colour);
}
