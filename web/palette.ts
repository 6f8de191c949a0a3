/** The charts' colours on a dark page. */

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
  "#0f172a": "#7a66e8",
  "#581c87": "#a25cb4",
  "#4a1d05": "#f0f06a",
  "#555555": "#b4b4b4",
};

/** A chart colour, which is for white paper, on the dark page. */
export function onDark(colour: string): string {
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
