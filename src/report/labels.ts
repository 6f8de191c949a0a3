/** How numbers, buckets, conventions and attentions are spelled for a reader: the same words in charts and tables. */
import type { Convention } from "../compute/compute.ts";
import { type Bucket, bucketLabel } from "../fit/index.ts";
import type { Interval } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import type { Axis } from "./curves.ts";

/** The title of a loss axis: `LM loss 10k-12k`, or `LM loss` for all positions. */
export function lossTitle(bucket: Bucket): string {
  return bucket.position_start === null ? "LM loss" : `LM loss ${bucketLabel(bucket)}`;
}

/** An axis in words (`against tokens`) and as its label. */
export function axisTitle(axis: Axis): string {
  if (axis === "6ND" || axis === "attended") return `compute by ${conventionTitle(axis)}`;
  return axis;
}

export function axisLabel(axis: Axis): string {
  return {
    "6ND": "PFLOP/s-days",
    attended: "PFLOP/s-days (operations as attended)",
    tokens: "tokens",
    steps: "step",
    time: "time, s",
  }[axis];
}

export function conventionTitle(convention: Convention): string {
  return convention === "6ND" ? "6ND" : "operations as attended";
}

const SUPERSCRIPTS: Record<string, string> = {
  "-": "⁻",
  "0": "⁰",
  "1": "¹",
  "2": "²",
  "3": "³",
  "4": "⁴",
  "5": "⁵",
  "6": "⁶",
  "7": "⁷",
  "8": "⁸",
  "9": "⁹",
};

/** A tick of a log axis: plain from 0.001 to 100,000, else `2×10⁻⁹`. */
export function tickLabel(value: number): string {
  if (value >= 0.000999 && value < 1e5) return String(Number(value.toPrecision(6)));
  const [mantissa, exponent] = value.toExponential(5).split("e") as [string, string];
  const power = `10${[...String(Number(exponent))].map((c) => SUPERSCRIPTS[c]).join("")}`;
  const m = Number(mantissa);
  return m === 1 ? power : `${m}×${power}`;
}

/** A number with `digits` significant digits, kept plain from 0.001 to a million: `1.008`, `0.0512`, `3.2e-9`. */
export function formatNumber(value: number, digits = 3): string {
  // JSON has no infinity: the largest number stands for it.
  if (!(Math.abs(value) < Number.MAX_VALUE)) return value > 0 ? "∞" : value < 0 ? "-∞" : "-";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e6) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e") as [string, string];
    return `${mantissa}e${Number(exponent)}`;
  }
  // Whole parts are never rounded away: 1234 stays 1234 whatever `digits` is.
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(decimals);
}

/** A number with a fixed count of decimals, falling back to significant digits when those would hide it. */
export function formatFixed(value: number, decimals: number): string {
  if (!Number.isFinite(value) || (value !== 0 && Math.abs(value) < 0.5 * 10 ** -decimals))
    return formatNumber(value);
  return Math.abs(value) >= 1e6 ? formatNumber(value) : value.toFixed(decimals);
}

/** `[1.3, 24]`: an interval with the given number format. */
export function formatInterval(interval: Interval, format: (value: number) => string): string {
  return `[${format(interval[0])}, ${format(interval[1])}]`;
}

/** Large counts for people: `545M`, `10.8B`, `98.3k`. */
export function formatCount(value: number): string {
  for (const [size, suffix] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (value >= size * 0.9995) return `${Number((value / size).toPrecision(3))}${suffix}`;
  }
  return String(Number(value.toPrecision(3)));
}

/** Those of `every` that rows are of, in its order. */
export function attentionsAmong(
  every: readonly string[],
  rows: readonly { readonly attention: string }[],
): string[] {
  const named = new Set(rows.map(({ attention }) => attention));
  return every.filter((label) => named.has(label));
}

const KINDS: readonly (readonly [RegExp, string])[] = [
  [/^full$/, "Full attention"],
  [/^moba(?:-|$)/, "MoBA"],
  [/^window-/, "Sliding window"],
  [/^sink-/, "Sink + window"],
];

/**
 * A name to read for each attention label: `Full attention`, `MoBA`. Where two labels share a kind, or where the
 * label carries a schedule, the rest of the label follows, as in `MoBA b128 k4`.
 */
export function attentionTitles(labels: Iterable<string>): Map<string, string> {
  const ordered = orderAttentions(labels);
  const kindOf = (label: string) => KINDS.find(([pattern]) => pattern.test(label))?.[1];
  const titles = new Map<string, string>();
  for (const label of ordered) {
    const kind = kindOf(label);
    const alone = kind !== undefined && ordered.filter((other) => kindOf(other) === kind).length === 1;
    if (kind === undefined) titles.set(label, label);
    else if (alone && !/[/+@]/.test(label)) titles.set(label, kind);
    else {
      const rest = label.replace(/^[a-z]+-?/, "").replace(/-/g, " ");
      titles.set(label, rest === "" ? kind : `${kind} ${rest}`);
    }
  }
  return titles;
}

/** Blue for the first MoBA, red for full attention as published; further ones from a colour-blind-safe set. */
const FULL_COLOUR = "#d0222b";
const MOBA_COLOUR = "#1f4fd0";
const FURTHER_COLOURS = ["#008763", "#c77700", "#a64d8f", "#0f172a", "#581c87", "#4a1d05"];

/** The colour of each attention label, by the order of the labels: those of all attentions, also where few are drawn. */
export function attentionColours(labels: Iterable<string>): Map<string, string> {
  const colours = new Map<string, string>();
  let mobas = 0;
  let further = 0;
  for (const label of orderAttentions(labels)) {
    if (label === "full") colours.set(label, FULL_COLOUR);
    else if (/^moba\b/.test(label) && mobas++ === 0) colours.set(label, MOBA_COLOUR);
    else colours.set(label, FURTHER_COLOURS[further++ % FURTHER_COLOURS.length]!);
  }
  return colours;
}

/** A colour mixed with white: `share` 1 is the colour itself. */
export function tint(colour: string, share: number): string {
  const channels = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16));
  return `#${channels
    .map((c) =>
      Math.round(255 + (c - 255) * share)
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}
