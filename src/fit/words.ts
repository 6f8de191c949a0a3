/** How the fit's sentences write names, budgets, ratios and lists. */

/** Attentions or sizes that the reading tells of; a table of more has the others in its tables. */
export const MOST_TOLD = 6;

/**
 * Names of attentions in sentences and legends: `MoBA` for a label that starts with `moba` (the label itself when the
 * table has several of them), `full attention` for `full`, else the label.
 */
export function nameAttentions(labels: Iterable<string>): (label: string) => string {
  const mobas = new Set([...labels].filter((label) => label.startsWith("moba")));
  return (label) => {
    if (label === "full") return "full attention";
    return label.startsWith("moba") && mobas.size < 2 ? "MoBA" : label;
  };
}

/** Attentions in the one order of sentences, charts and tables: full attention first, the others as they are first named. */
export function orderAttentions(labels: Iterable<string>): string[] {
  return [...new Set(labels)].sort((a, b) => Number(b === "full") - Number(a === "full"));
}

/** Items in the order of their attentions, those of one attention as they were, those of none in the order last. */
export function sortByAttention<Item>(
  items: readonly Item[],
  order: readonly string[],
  attentionOf: (item: Item) => string | undefined,
): Item[] {
  const groups = byReason(items, (item) => attentionOf(item) ?? "");
  const places = new Map<string | undefined, number>(order.map((attention, i) => [attention, i]));
  const place = ([item]: Item[]) => places.get(attentionOf(item)) ?? order.length;
  return groups.sort((a, b) => place(a) - place(b)).flat();
}

/** A ratio near 1 with three decimals, else three significant digits. */
export function formatRatio(ratio: number): string {
  return ratio >= 0.1 && ratio < 10 ? ratio.toFixed(3) : ratio.toPrecision(3);
}

/** A budget in PFLOP/s-days with three significant digits. */
export function formatBudget(pflopsDays: number): string {
  return pflopsDays >= 1e-3 && pflopsDays < 1e4
    ? String(Number(pflopsDays.toPrecision(3)))
    : pflopsDays.toExponential(2);
}

/** With its sign, which a number that rounds to zero has not. */
export function signed(value: number, decimals: number): string {
  const text = value.toFixed(decimals);
  if (Number(text) === 0) return (0).toFixed(decimals);
  return value > 0 ? `+${text}` : text;
}

/** How many times as much: two decimals, else three significant digits. */
export function formatFactor(factor: number): string {
  return factor >= 0.1 && factor < 100 ? factor.toFixed(2) : formatBudget(factor);
}

/** A share as a signed percentage, such as `+1.9 %`. */
export function signedPercent(share: number, decimals = 1): string {
  return `${signed(100 * share, decimals)} %`;
}

/**
 * A ratio to `what`, which may be empty, as a sentence says it: `3.3 % higher than what (95 % interval -0.9 % to +7.7 %,
 * so not ...)`.
 */
export function higherThan(what: string, ratio: number, [low, high]: readonly [number, number]): string {
  const percent = Math.abs(100 * (ratio - 1));
  const size = `${percent.toFixed(percent < 0.1 ? 2 : 1)} % ${ratio >= 1 ? "higher" : "lower"}`;
  const told = low > 1 || high < 1 ? "" : ", so not distinguishable";
  return `${size}${what && ` than ${what}`} (95 % interval ${signedPercent(low - 1)} to ${signedPercent(high - 1)}${told})`;
}

/** A length in tokens: `16k` where it is whole, else all digits. */
export function formatLength(tokens: number): string {
  return tokens >= 1024 && tokens % 1024 === 0 ? `${tokens / 1024}k` : String(tokens);
}

/** A list in a sentence. */
export function listOf(items: readonly string[], comma: string, last: string): string {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(comma)}${last}${items.at(-1)}`;
}

/** A few names, and how many more. */
export function fewOf(names: readonly string[], limit = 4): string {
  if (names.length <= limit) return names.join(", ");
  return `${names.slice(0, limit - 1).join(", ")} and ${names.length - limit + 1} more`;
}

/** Names in a sentence, or the first few and how many more. */
export function allOf(names: readonly string[]): string {
  return names.length > MOST_TOLD ? fewOf(names, MOST_TOLD) : listOf(names, ", ", " and ");
}

/** The same of names of which any one is meant. */
export function anyOf(names: readonly string[]): string {
  return names.length > MOST_TOLD ? fewOf(names, MOST_TOLD) : listOf(names, ", ", " or ");
}

/** An exponent with some decimals; `-∞` or `∞` where the runs leave its size open. */
export function formatExponent(value: number, decimals = 4): string {
  if (Math.abs(value) > 1e6) return value < 0 ? "-∞" : "∞";
  return value.toFixed(decimals);
}

/** Items by what `reasonOf` says of them, in the order met. */
export function byReason<Item>(items: Iterable<Item>, reasonOf: (item: Item) => string): Item[][] {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const reason = reasonOf(item);
    const group = groups.get(reason);
    if (group) group.push(item);
    else groups.set(reason, [item]);
  }
  return [...groups.values()];
}
