/** What is shown, kept in the address after `#`, so that a link restores the view: `#curves?study=quick&smooth=0.1`. */
import { computed, signal } from "@preact/signals";
import type { Interval } from "../src/fit/types.ts";

export const TABS = ["runs", "scaling", "positions", "curves", "findings", "moba"] as const;
export type Tab = (typeof TABS)[number];

function parse(hash: string): { tab: string; query: URLSearchParams } {
  const [tab = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { tab, query: new URLSearchParams(query) };
}

const here = signal(parse(location.hash));
addEventListener("hashchange", () => {
  here.value = parse(location.hash);
});

/** The tab that is shown before one is chosen. */
export const firstTab = signal<Tab>("runs");

export const tab = computed<Tab>(() => TABS.find((name) => name === here.value.tab) ?? firstTab.value);

export function param(name: string): string | null {
  return here.value.query.get(name);
}

/** One of the given values; the first when the address holds no other. */
export function choice<T extends string>(name: string, values: readonly T[]): T {
  const given = param(name);
  return values.find((value) => value === given) ?? values[0]!;
}

/** Limits of an axis such as `0.1-20`. */
export function interval(name: string): Interval | undefined {
  const [low, high] = (param(name) ?? "").split("~").map(Number);
  return low! > 0 && high! > low! && Number.isFinite(high) ? [low!, high!] : undefined;
}

export const spellInterval = (domain: Interval) =>
  domain.map((value) => Number(value.toPrecision(6))).join("~");

/** Changes the view; null takes a parameter out. A change of tab can be undone with the browser's Back. */
export function go(changes: Record<string, string | readonly string[] | null>, to: Tab = tab.value): void {
  const query = new URLSearchParams(here.value.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of typeof value === "string" ? [value] : (value ?? []))
      if (one !== "") query.append(name, one);
  }
  const text = query.toString();
  const hash = `#${to}${text === "" ? "" : `?${text}`}`;
  if (to === tab.value) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  here.value = parse(hash);
}

/** Attention labels that are not shown. */
export const hidden = computed<ReadonlySet<string>>(() => new Set(here.value.query.getAll("hide")));

export function toggleHidden(label: string): void {
  const labels = new Set(hidden.value);
  if (!labels.delete(label)) labels.add(label);
  go({ hide: [...labels] });
}
