/** The four claims people make about a scaling chart, judged by the ratio's interval over the fitted range (docs/method.md, section 5). */
import type { Claim, Comparison, Interval, Verdict } from "./types.ts";
import { formatBudget, formatRatio } from "./words.ts";

interface Evidence {
  /** 95 % interval of the log ratio at a log C. */
  readonly intervalAt: (x: number) => Interval;
  /** The fitted range, log C. */
  readonly low: number;
  readonly high: number;
  readonly crossing: Comparison["crossing"];
  readonly verdict: Verdict;
  readonly margin: number;
}

const NODES = 32;

/** Where a smooth function is largest on [low, high]: the best of a grid, then golden-section search around it. */
function peak(f: (x: number) => number, low: number, high: number): number {
  const golden = (Math.sqrt(5) - 1) / 2;
  const node = (i: number) => low + ((high - low) * Math.min(NODES, Math.max(0, i))) / NODES;
  let best = 0;
  for (let i = 1; i <= NODES; i++) if (f(node(i)) > f(node(best))) best = i;
  let [a, b] = [node(best - 1), node(best + 1)];
  for (let i = 0; i < 60; i++) {
    const p = b - golden * (b - a);
    const q = a + golden * (b - a);
    if (f(p) < f(q)) a = p;
    else b = q;
  }
  const middle = (a + b) / 2;
  return [low, middle, high].reduce((highest, x) => (f(x) > f(highest) ? x : highest));
}

export function judgeClaims(evidence: Evidence): Claim[] {
  const { intervalAt, low, high, crossing, verdict, margin } = evidence;
  const at = (x: number) => {
    const [from, to] = intervalAt(x);
    return `${formatRatio(Math.exp(from))} to ${formatRatio(Math.exp(to))} at ${formatBudget(Math.exp(x))}`;
  };
  const ends = `the ratio's 95 % interval is ${at(low)} and ${at(high)} PFLOP/s-days, the ends of the fitted range`;
  const lower = (x: number) => intervalAt(x)[0];
  const upper = (x: number) => intervalAt(x)[1];
  const highestLower = peak(lower, low, high);
  const lowestUpper = peak((x) => -upper(x), low, high);
  const highestUpper = peak(upper, low, high);
  const lowestLower = peak((x) => -lower(x), low, high);
  const claims: Claim[] = [];
  const add = (claim: Claim["claim"], judgement: Claim["judgement"], because: string) =>
    claims.push({ claim, judgement, because: `${because[0].toUpperCase()}${because.slice(1)}.` });

  if (verdict === "crossing" && crossing !== null) {
    const [from, to] = crossing.interval.map(formatBudget);
    const because =
      `the crossing is located at ${formatBudget(crossing.pflops_days)} PFLOP/s-days (95 % interval ${from} to ${to}),` +
      ` and that interval meets the fitted range`;
    add("cross", "supported", because);
    add("never cross", "refuted", because);
  } else if (verdict === "other higher" || verdict === "other lower") {
    const because = `${ends}, and excludes 1 throughout`;
    add("cross", "refuted", because);
    add("never cross", "supported", because);
  } else {
    const because =
      crossing === null
        ? `no crossing can be located (its 95 % set is not a bounded interval) and ${ends}`
        : `the crossing's 95 % interval lies outside the fitted range, and ${ends}`;
    add("cross", "undecided", because);
    add("never cross", "undecided", because);
  }

  if (upper(highestUpper) < 0) {
    add("lower throughout", "supported", `${ends}, and its upper end stays below 1`);
  } else if (lower(highestLower) > 0) {
    add(
      "lower throughout",
      "refuted",
      `the ratio's 95 % interval is ${at(highestLower)} PFLOP/s-days, above 1`,
    );
  } else {
    add(
      "lower throughout",
      "undecided",
      `the ratio's 95 % interval reaches 1 or more (${at(highestUpper)} PFLOP/s-days) but lies wholly above 1 nowhere`,
    );
  }

  // The margin is the same factor either way, so that swapping the two attentions changes nothing.
  const allowed = Math.log1p(margin);
  const percent = `${Number((100 * margin).toPrecision(3))} %`;
  if (upper(highestUpper) <= allowed && lower(lowestLower) >= -allowed) {
    add("the same", "supported", `${ends}, within ${percent} of 1`);
  } else if (lower(highestLower) > allowed || upper(lowestUpper) < -allowed) {
    const where = lower(highestLower) > allowed ? highestLower : lowestUpper;
    add(
      "the same",
      "refuted",
      `the ratio's 95 % interval is ${at(where)} PFLOP/s-days, wholly more than ${percent} from 1`,
    );
  } else {
    const widest = upper(highestUpper) > -lower(lowestLower) ? highestUpper : lowestLower;
    add(
      "the same",
      "undecided",
      `the ratio's 95 % interval leaves the margin of ${percent} (${at(widest)} PFLOP/s-days) but lies wholly outside it nowhere`,
    );
  }
  return claims;
}
