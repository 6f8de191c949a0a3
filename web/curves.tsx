/** Curves of training: any recorded quantity of every run against tokens, steps, time or compute, on log axes. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { smooth } from "../src/fit/smooth.ts";
import type { Interval } from "../src/fit/types.ts";
import { lossDomain } from "../src/report/axes.ts";
import { axisLabel, formatCount, formatNumber, tickLabel } from "../src/report/labels.ts";
import { type Line, lineChart } from "../src/report/training.ts";
import { Choice } from "./controls.tsx";
import { ExportButtons } from "./export-buttons.tsx";
import { type Fence, fenceOf, isAway, middleOf, NO_FENCE } from "./fence.ts";
import { edgeOf, isResume, type LiveLine, LivePlot, type LivePoint, search } from "./live-plot.ts";
import { choice, go, hidden, interval, param, spellInterval } from "./location.ts";
import { Sweep } from "./measured.tsx";
import { BucketChoice, useBucket } from "./scaling.tsx";
import { connection, type EvaluationRow, finer, type Study } from "./store.ts";
import { dark, shade } from "./theme.ts";
import { COLUMNS, type Column, type Track } from "./track.ts";

const QUANTITIES = [
  { value: "loss", title: "training loss" },
  { value: "heldOut", title: "held-out loss" },
  { value: "gradNorm", title: "gradient norm" },
  { value: "learningRate", title: "learning rate" },
  { value: "tokensPerSecond", title: "tokens/s" },
] as const;
type Quantity = (typeof QUANTITIES)[number]["value"];

const ALONG = [
  { value: "tokens", title: "tokens", label: "tokens", format: formatCount },
  { value: "step", title: "steps", label: "step", format: formatCount },
  { value: "time_s", title: "time", label: axisLabel("time"), format: tickLabel },
  { value: "pflops_days", title: "compute, 6ND", label: axisLabel("6ND"), format: tickLabel },
  {
    value: "pflops_days_attended",
    title: "compute, as attended",
    label: axisLabel("attended"),
    format: tickLabel,
  },
] as const;

const SMOOTHING = [
  { value: "0.05", title: "0.05 decades" },
  { value: "0", title: "none" },
  { value: "0.02", title: "0.02 decades" },
  { value: "0.1", title: "0.1 decades" },
  { value: "0.2", title: "0.2 decades" },
] as const;

export function Curves({ study }: { study: Study }) {
  // A curves table has held-out losses alone, and perhaps no tokens.
  const usual: Quantity =
    study.tracks.size === 0 && study.evaluations.size > 0 && study.state.value === "ready"
      ? "heldOut"
      : "loss";
  const quantity = QUANTITIES.find(({ value }) => value === param("y-of"))?.value ?? usual;
  const bucket = useBucket(study);
  const decades = Number(
    choice(
      "smooth",
      SMOOTHING.map(({ value }) => value),
    ),
  );
  const only = param("run");
  const [xDomain, yDomain] = [interval("x"), interval("y")];
  const away = hidden.value;
  const runs = study.runs.value;
  const changed = quantity === "heldOut" ? study.evaluationsChanged.value : study.tracksChanged.value;
  const names = runs.map((run) => run.id).join("\n");
  const colours = useMemo(
    () => new Map(study.facts.value.attentions.map(({ label, colour }) => [label, colour])),
    [study.facts.value],
  );
  const shown = useMemo(
    () => runs.filter((run) => (only === null || run.id === only) && !away.has(run.attention)),
    [names, only, away],
  );
  const usualAlong = useMemo(
    () => firstKnown(study, quantity, bucket),
    [study, quantity, bucket, changed > 0],
  );
  const along = ALONG.find(({ value }) => value === (param("x-of") ?? usualAlong)) ?? ALONG[0];
  const fine = useFiner(study, shown.map((run) => run.id).join("\n"), along.value, xDomain, quantity);

  // Of each run, what it was made of the last time: an update changes a few of many.
  const sources = useRef(new Map<string, Source>());
  const drawn = useRef(new Map<string, { of: readonly unknown[]; line: LiveLine }>());
  const lines = useMemo(() => {
    const read = shown.flatMap((run) => {
      const track = study.tracks.get(run.id);
      const of = [study, track, track?.version, fine.get(run.id), quantity];
      const known = sources.current.get(run.id);
      if (quantity !== "heldOut" && known?.of.every((one, i) => one === of[i]))
        return [{ run, source: known }];
      const all =
        quantity === "heldOut"
          ? evaluationColumns(study, run.id, bucket)
          : trackColumns(track, fine.get(run.id));
      if (!all) return [];
      const columns = recorded(all, quantity);
      const raw = quantity === "heldOut" ? columns.loss : columns[quantity];
      const source = { of, columns, raw, middle: middleOf(raw) };
      sources.current.set(run.id, source);
      return [{ run, source }];
    });
    // A learning rate is set, not measured: a warm-up begins as low as it was told to.
    const fence = quantity === "learningRate" ? NO_FENCE : fenceOf(read.map(({ source }) => source.middle));
    return read.map(({ run, source }): LiveLine => {
      const of = [source, fence.low, fence.high, along, decades, colours];
      const known = drawn.current.get(run.id);
      if (known?.of.every((one, i) => one === of[i])) return known.line;
      const { columns, raw } = source;
      const [away, near] = held(raw, fence);
      // Held-out losses are means of many windows already.
      const reach = quantity === "heldOut" ? 0 : decades;
      const values = quantity === "loss" ? held(columns.meanLoss, fence)[1] : near;
      const line: LiveLine = {
        run: run.id,
        colour: colours.get(run.attention) ?? "#555555",
        x: columns[along.value],
        raw,
        smoothed: reach > 0 ? blanked(smooth(columns.tokens, values, reach), near) : near,
        smooths: reach > 0,
        away,
        step: columns.step,
        attempt: columns.attempt,
      };
      drawn.current.set(run.id, { of, line });
      return line;
    });
  }, [shown, colours, study, changed, quantity, bucket, along, decades, fine]);

  const isDark = dark.value;
  const whole = useMemo(() => domainsOf(lines), [lines]);
  const place = bucket === null ? null : study.facts.value.buckets[bucket]!;
  const title =
    QUANTITIES.find(({ value }) => value === quantity)!.title +
    (quantity === "heldOut" && place ? ` ${place.label}` : "");
  const view = whole && {
    lines,
    x: { domain: xDomain ?? whole.x, label: along.label, format: along.format },
    y: { domain: yDomain ?? whole.y, label: title, format: tickLabel },
  };
  const zoom = (domains: { x: Interval; y: Interval } | null) =>
    go({ x: domains && spellInterval(domains.x), y: domains && spellInterval(domains.y) });
  const chart = () =>
    view &&
    lineChart(
      lines.map((line) => lineOf(line, runs.find((run) => run.id === line.run)!.attention, view.y.domain)),
      {
        name: `curves-${quantity.toLowerCase()}`,
        title: `${title} against ${along.title}`,
        x: view.x,
        y: view.y,
        xDomain: view.x.domain,
        yDomain: view.y.domain,
        attentions: study.facts.value.attentions.map(({ label }) => label),
      },
    );

  return (
    <section aria-labelledby="curves-title">
      <h2 id="curves-title">Training curves</h2>
      <div class="controls">
        <Choice label="Show" name="y-of" value={quantity} usual={usual} values={QUANTITIES} reset={["y"]} />
        <Choice
          label="against"
          name="x-of"
          value={along.value}
          usual={usualAlong}
          values={ALONG}
          reset={["x"]}
        />
        {quantity === "heldOut" ? (
          <BucketChoice study={study} />
        ) : (
          <Choice label="Smoothing" name="smooth" value={String(decades)} values={SMOOTHING} />
        )}
        <Choice
          label="Runs"
          name="run"
          value={only ?? ""}
          list
          values={[{ value: "", title: "all" }, ...runs.map((run) => ({ value: run.id, title: run.id }))]}
          reset={["x", "y"]}
        />
        {(xDomain || yDomain) && (
          <button type="button" onClick={() => zoom(null)}>
            Whole range
          </button>
        )}
      </div>
      <figure class="chart">
        {view ? (
          <Canvas view={view} isDark={isDark} title={`${title} against ${along.title}`} onZoom={zoom} />
        ) : (
          <div class="paper">
            <p class="empty">
              {study.state.value === "loading"
                ? "Reading the records."
                : lines.some(({ raw }) => raw.length > 0)
                  ? "Nothing that is recorded of this has a place on log axes."
                  : "Nothing is recorded of this yet."}
            </p>
          </div>
        )}
        <figcaption>
          <p>
            {quantity === "heldOut"
              ? "Held-out loss at each evaluation."
              : `Each line is a run. ${
                  decades > 0
                    ? `Exponential mean over ${decades} decades of tokens, whatever the length of the run; what was recorded is pale behind it.`
                    : "As recorded."
                }`}{" "}
            Marks at the edge: a cross is a value that is not a number, an open triangle one that is infinite,
            not above zero or far from all others (left out of the mean), a filled one a resume.
          </p>
          <Events lines={lines} title={title} />
          {view && <ExportButtons chart={chart} />}
        </figcaption>
      </figure>
      {only !== null && <Config study={study} run={only} />}
      {only === null && <Sweep study={study} />}
    </section>
  );
}

/** What a run was told, as it stands in its folder. */
function Config({ study, run }: { study: Study; run: string }) {
  const config = study.configs.value?.runs.find((one) => one.run === run)?.config;
  if (config == null) return null;
  return (
    <details>
      <summary>config.json of {run}</summary>
      <pre>
        <code>{JSON.stringify(config, null, 2)}</code>
      </pre>
    </details>
  );
}

function Canvas(props: {
  view: Parameters<LivePlot["show"]>[0];
  isDark: boolean;
  title: string;
  onZoom: (domains: { x: Interval; y: Interval } | null) => void;
}) {
  const { view, isDark, title, onZoom } = props;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<LivePlot | null>(null);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const point = useSignal<LivePoint | null>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const live = new LivePlot(holder.current!, {
      onZoom: (domains) => zoom.current(domains),
      onPoint: (next) => {
        point.value = next;
      },
    });
    plot.current = live;
    const paper = holder.current!.parentElement!;
    const measure = () => {
      const room = Math.floor(paper.clientWidth / 20) * 20;
      setWidth(Math.min(1180, Math.max(280, room)));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(paper);
    return () => {
      observer.disconnect();
      live.destroy();
    };
  }, []);
  useEffect(() => {
    if (width > 0) plot.current!.show(view, width, isDark);
  }, [view, width, isDark]);
  return (
    <div class="paper">
      <div
        ref={holder}
        class="picture zooms live"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it takes arrow keys.
        tabIndex={0}
        role="application"
        aria-label={`${title}, ${view.lines.length} runs. Arrow keys move the crosshair, plus and minus zoom.`}
        onKeyDown={(event) => {
          if (plot.current!.key(event)) event.preventDefault();
        }}
      />
      <p class="readout" aria-live="polite">
        {point.value ? (
          <PointWords point={point.value} view={view} />
        ) : (
          "Point or use arrow keys for exact values; drag or + to zoom, double-click or 0 to go back."
        )}
      </p>
    </div>
  );
}

function PointWords({
  point: { line, at },
  view,
}: {
  point: LivePoint;
  view: Parameters<LivePlot["show"]>[0];
}) {
  const raw = line.raw[at]!;
  const value = (number: number) => (Number.isFinite(number) ? formatNumber(number, 5) : String(number));
  return (
    <>
      <span class="swatch" style={{ background: shade(line.colour) }} />
      <b>{line.run}</b>{" "}
      {line.step[at]! >= 0 && (
        <>
          step <output>{line.step[at]}</output>,{" "}
        </>
      )}
      {view.x.label} <output>{formatNumber(line.x[at]!, 5)}</output>, {view.y.label}{" "}
      <output>{value(raw)}</output>
      {line.smooths && Number.isFinite(line.smoothed[at]!) && (
        <>
          , smoothed <output>{value(line.smoothed[at]!)}</output>
        </>
      )}
      {line.attempt[at]! > 1 && <>, attempt {line.attempt[at]}</>}
    </>
  );
}

/** The marks of the chart in words. */
function Events({ lines, title }: { lines: readonly LiveLine[]; title: string }) {
  const told = lines.flatMap((line) => {
    const parts: string[] = [];
    for (let i = 0; i < line.step.length; i++)
      if (isResume(line, i)) parts.push(`resumed at step ${line.step[i]} (attempt ${line.attempt[i]})`);
    const told = (of: readonly number[], is: string) => {
      const [first] = of;
      if (first === undefined) return;
      const value = line.raw[first]!;
      const words = Number.isFinite(value) ? formatNumber(value, 5) : String(value);
      const more = of.length > 1 ? ` and in ${of.length - 1} more of the steps shown` : "";
      parts.push(`${title} is ${words}${is} at step ${line.step[first]}${more}`);
    };
    const of = (fits: (value: number) => boolean) => line.away.filter((i) => fits(line.raw[i]!));
    told(
      of((value) => !Number.isFinite(value)),
      "",
    );
    told(
      of((value) => value > 0 && Number.isFinite(value)),
      ", far from all others,",
    );
    told(
      of((value) => value <= 0 && Number.isFinite(value)),
      ", which a log axis has no place for,",
    );
    return parts.length > 0 ? [{ run: line.run, words: parts.join("; ") }] : [];
  });
  if (told.length === 0) return null;
  return (
    <ul class="events">
      {told.map(({ run, words }) => (
        <li key={run}>
          <b>{run}</b>: {words}
        </li>
      ))}
    </ul>
  );
}

type Columns = Record<Column, readonly number[]>;

/** The first x that is known: tokens for runs of mobalab, for a curves table perhaps compute alone. */
function firstKnown(
  study: Study,
  quantity: Quantity,
  bucket: number | null,
): (typeof ALONG)[number]["value"] {
  const runs = study.runs.peek();
  const known = ALONG.find(({ value }) =>
    runs.some((run) => {
      const columns =
        quantity === "heldOut" ? evaluationColumns(study, run.id, bucket) : study.tracks.get(run.id)?.columns;
      return columns?.[value].some((x) => x > 0);
    }),
  );
  return known?.value ?? "tokens";
}

/** The held-out losses of one bucket (null: all positions), where they are known. */
function evaluationColumns(study: Study, run: string, bucket: number | null): Columns | null {
  const lossOf = (row: EvaluationRow) => (bucket === null ? row.lm_loss : row.buckets[bucket]!);
  const rows = [...(study.evaluations.get(run)?.values() ?? [])]
    .filter((row) => !Number.isNaN(lossOf(row)))
    .sort((a, b) => a.step - b.step || 0);
  if (rows.length === 0) return null;
  const column = (of: (row: (typeof rows)[number]) => number) => rows.map(of);
  const unknown = rows.map(() => Number.NaN);
  return {
    step: column((row) => row.step),
    tokens: column((row) => row.tokens),
    attempt: column((row) => row.attempt),
    loss: column(lossOf),
    meanLoss: unknown,
    gradNorm: unknown,
    learningRate: unknown,
    tokensPerSecond: unknown,
    time_s: column((row) => row.time_s),
    pflops_days: column((row) => row.pflops_days),
    pflops_days_attended: column((row) => row.pflops_days_attended),
  };
}

/** A track, with a finer copy in place of the steps that it covers. */
function trackColumns(track: Track | undefined, fine: Track | undefined): Columns | null {
  if (!track || track.length === 0) return null;
  if (!fine || fine.length === 0) return track.columns;
  const { step } = track.columns;
  const before = search(step, fine.columns.step[0]!);
  const after = search(step, fine.columns.step.at(-1)! + 1);
  return Object.fromEntries(
    COLUMNS.map((name) => [
      name,
      [...track.columns[name].slice(0, before), ...fine.columns[name], ...track.columns[name].slice(after)],
    ]),
  ) as unknown as Columns;
}

/** Only of a loss is NaN a finding; elsewhere it says that nothing was recorded, and the step is left out. */
function recorded(columns: Columns, quantity: Quantity): Columns {
  if (quantity === "loss" || quantity === "heldOut") return columns;
  const kept = [...columns.step.keys()].filter((i) => !Number.isNaN(columns[quantity][i]!));
  if (kept.length === columns.step.length) return columns;
  return Object.fromEntries(
    COLUMNS.map((name) => [name, kept.map((i) => columns[name][i]!)]),
  ) as unknown as Columns;
}

/** What a line is drawn from. */
interface Source {
  readonly of: readonly unknown[];
  readonly columns: Columns;
  readonly raw: readonly number[];
  readonly middle: Interval | null;
}

/** Where values are not finite or away from the others, and the values with those left out. */
function held(values: readonly number[], fence: Fence): [away: readonly number[], near: readonly number[]] {
  const away: number[] = [];
  for (let i = 0; i < values.length; i++) if (isAway(values[i]!, fence)) away.push(i);
  if (away.length === 0) return [away, values];
  const near = [...values];
  for (const i of away) near[i] = Number.NaN;
  return [away, near];
}

/** A smoothed line has its gaps where the recorded one has them. */
function blanked(smoothed: Float64Array, near: ArrayLike<number>): Float64Array {
  for (let i = 0; i < smoothed.length; i++) if (Number.isNaN(near[i]!)) smoothed[i] = Number.NaN;
  return smoothed;
}

/** A line as it stands in a saved chart: with what was recorded behind it, and its marks. */
function lineOf(line: LiveLine, attention: string, domain: Interval): Line {
  const pointsOf = (values: ArrayLike<number>) => Array.from(line.x, (x, i) => ({ x, y: values[i]! }));
  const edge: NonNullable<Line["edge"]>[number][] = [];
  for (let i = 0; i < line.x.length; i++) if (isResume(line, i)) edge.push({ x: line.x[i]!, mark: "resume" });
  for (const i of line.away) {
    const mark = edgeOf(line.raw[i]!, domain);
    if (mark) edge.push({ x: line.x[i]!, mark });
  }
  return {
    run: line.run,
    attention,
    points: pointsOf(line.smoothed),
    ...(line.smoothed === line.raw ? {} : { recorded: pointsOf(line.raw) }),
    edge,
  };
}

interface Extent {
  readonly left: number;
  readonly right: number;
  readonly low: number;
  readonly high: number;
}

const extents = new WeakMap<LiveLine, Extent>();

/** The smallest and largest x and y of a line that have a place on log axes; `right` also of values that have none. */
function extentOf(line: LiveLine): Extent {
  const known = extents.get(line);
  if (known) return known;
  const { x: xs, smoothed } = line;
  let [left, right, low, high] = [Number.POSITIVE_INFINITY, 0, Number.POSITIVE_INFINITY, 0];
  for (let i = 0; i < xs.length; i++) {
    const [x, y] = [xs[i]!, smoothed[i]!];
    if (!(x > 0 && Number.isFinite(x))) continue;
    right = Math.max(right, x);
    if (!(y > 0 && Number.isFinite(y))) continue;
    left = Math.min(left, x);
    low = Math.min(low, y);
    high = Math.max(high, y);
  }
  const extent = { left, right, low, high };
  extents.set(line, extent);
  return extent;
}

/** In log x: the right limit moves by so much at a time, so that the lines that did not grow stay where they are. */
const STRIDE = 0.02;

/** Limits that hold every line, and marks beyond its end; null when there is nothing to draw. */
function domainsOf(lines: readonly LiveLine[]): { x: Interval; y: Interval } | null {
  let [left, right, low, high] = [Number.POSITIVE_INFINITY, 0, Number.POSITIVE_INFINITY, 0];
  for (const extent of lines.map(extentOf)) {
    left = Math.min(left, extent.left);
    right = Math.max(right, extent.right);
    low = Math.min(low, extent.low);
    high = Math.max(high, extent.high);
  }
  if (high === 0) return null;
  const end = Math.exp(STRIDE * Math.ceil(Math.log(right * 1.01) / STRIDE));
  const [bottom, top] = lossDomain([low, high], [high]);
  return { x: [left, right > left ? end : left * 10], y: [bottom, Math.min(top, Number.MAX_VALUE)] };
}

/** Runs that are read again more finely when the chart is zoomed; more would be too many lines to tell apart. */
const MOST = 24;

/** Finer copies of the shown runs between the limits of a zoomed x axis. */
function useFiner(
  study: Study,
  names: string,
  along: Column,
  domain: Interval | undefined,
  quantity: Quantity,
): ReadonlyMap<string, Track> {
  const [fine, setFine] = useState<ReadonlyMap<string, Track>>(new Map());
  const from = domain?.[0];
  const to = domain?.[1];
  // Not while the whole of it is read, for the first time or anew.
  const ready = study.state.value === "ready";
  useEffect(() => {
    setFine(new Map());
    if (!ready || from === undefined || to === undefined || quantity === "heldOut") return;
    if (connection.peek() === "frozen") return;
    let current = true;
    const timer = setTimeout(async () => {
      const found = new Map<string, Track>();
      for (const run of names.split("\n").slice(0, MOST)) {
        const columns = study.tracks.get(run)?.columns;
        if (!columns || columns.step.length === 0) continue;
        const first = columns.step[Math.max(0, search(columns[along], from) - 1)]!;
        const last = columns.step[Math.min(columns.step.length - 1, search(columns[along], to))]!;
        const track = await finer(study, run, first, last).catch(() => null);
        if (!current) return;
        if (track) found.set(run, track);
      }
      setFine(found);
    }, 250);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [study, ready, names, along, from, to, quantity]);
  return fine;
}
