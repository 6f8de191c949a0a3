/** The data of the page: read once, then kept up to date by the server's events; or all of it from a frozen page. */
import { computed, type Signal, signal } from "@preact/signals";
import type { CurvePoint } from "../src/fit/types.ts";
import type {
  Change,
  Configs,
  EvaluationColumns,
  Evaluations,
  Metrics,
  Overview,
  Results,
  RunView,
  Snapshot,
  StudyFacts,
} from "../src/server/api.ts";
import { firstTab, param } from "./location.ts";
import { listen } from "./stream.ts";
import { numberOf, Track } from "./track.ts";

/** One study as the page knows it. The counters tell views that the tracks or evaluations beside them changed. */
export interface Study {
  readonly id: string;
  readonly facts: Signal<StudyFacts>;
  readonly runs: Signal<readonly RunView[]>;
  readonly tracks: Map<string, Track>;
  readonly tracksChanged: Signal<number>;
  /** By run, then by step. */
  readonly evaluations: Map<string, Map<number, EvaluationRow>>;
  readonly evaluationsChanged: Signal<number>;
  readonly results: Signal<Results | null>;
  readonly configs: Signal<Configs | null>;
  /** What a frozen page carries; null when it carries none, or there is a server to ask. */
  model: Snapshot["studies"][number]["model"];
  /** Counts how often what was read of it was forgotten: an answer to an earlier question is none. */
  generation: number;
  /** `none` until it is first shown. */
  readonly state: Signal<"none" | "loading" | "ready">;
}

export interface EvaluationRow {
  readonly step: number;
  readonly tokens: number;
  readonly attempt: number;
  readonly time_s: number;
  readonly pflops_days: number;
  readonly pflops_days_attended: number;
  readonly lm_loss: number;
  readonly buckets: readonly number[];
}

export const studies = signal<readonly Study[]>([]);
export const version = signal("");
/** The server's clock in milliseconds since 1970, every ten seconds; 0 on a frozen page. */
export const now = signal(0);
export const connection = signal<"connecting" | "live" | "lost" | "frozen">("connecting");
export const failure = signal<string | null>(null);

/** The study of the address, else the first. */
export const study = computed<Study | null>(() => {
  const wanted = param("study");
  return studies.value.find(({ id }) => id === wanted) ?? studies.value[0] ?? null;
});

export function start(): void {
  const frozen = document.getElementById("mobalab-data");
  if (frozen) {
    thaw(JSON.parse(frozen.textContent!) as Snapshot);
    return;
  }
  void readAll();
  setInterval(() => {
    now.value = Date.now() + clockAhead;
  }, 10_000);
  // A page that nobody looks at need not draw, and one that is closed leaves its place to others.
  const rest = () => {
    endEvents?.();
    endEvents = null;
  };
  addEventListener("pagehide", rest);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") rest();
    else if (endEvents === null && cursor !== null) follow(cursor);
  });
}

function thaw(snapshot: Snapshot): void {
  connection.value = "frozen";
  firstTab.value = "scaling";
  adopt(snapshot.overview);
  for (const frozen of snapshot.studies) {
    const known = find(frozen.id);
    if (!known) continue;
    takeMetrics(known, frozen.metrics);
    takeEvaluations(known, frozen.evaluations);
    known.results.value = frozen.results;
    known.configs.value = frozen.configs;
    known.model = frozen.model;
    known.state.value = "ready";
  }
}

function adopt(overview: Overview): void {
  version.value = overview.version;
  now.value = overview.time === null ? 0 : Date.parse(overview.time);
  clockAhead = now.value - Date.now();
  studies.value = overview.studies.map(({ runs, ...facts }) => {
    const known = find(facts.id) ?? newStudy(facts);
    known.facts.value = facts;
    known.runs.value = runs;
    return known;
  });
}

const find = (id: string) => studies.peek().find((one) => one.id === id);

function newStudy(facts: StudyFacts): Study {
  return {
    id: facts.id,
    facts: signal(facts),
    runs: signal<readonly RunView[]>([]),
    tracks: new Map(),
    tracksChanged: signal(0),
    evaluations: new Map(),
    evaluationsChanged: signal(0),
    results: signal<Results | null>(null),
    configs: signal<Configs | null>(null),
    model: null,
    generation: 0,
    state: signal<"none" | "loading" | "ready">("none"),
  };
}

export async function get<T>(path: string): Promise<T> {
  const response = await fetch(`api/${path}`, { credentials: "same-origin" });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(body?.error ?? `the server answered ${response.status}`);
  return body as T;
}

export const at = (one: Study, rest: string) => `studies/${encodeURIComponent(one.id)}/${rest}`;

let endEvents: (() => void) | null = null;
/** Of the last change that arrived; null before the first overview. */
let cursor: string | null = null;
/** Milliseconds of the server's clock before this one. */
let clockAhead = 0;

async function readAll(): Promise<void> {
  try {
    const overview = await get<Overview>("studies");
    adopt(overview);
    failure.value = null;
    for (const one of studies.peek()) forget(one);
    if (study.peek()) void load(study.peek()!);
    follow(overview.cursor);
  } catch (error) {
    connection.value = "lost";
    failure.value = (error as Error).message;
    readAllAgain();
  }
}

let willReadAll = false;

/** Soon, and once: of a stream that windows share, each of them hears whenever one has asked for it in vain. */
function readAllAgain(): void {
  if (willReadAll) return;
  willReadAll = true;
  setTimeout(() => {
    willReadAll = false;
    void readAll();
  }, 2000);
}

/** Reads what a study's charts need; done once, events then keep it up to date. */
export async function load(one: Study): Promise<void> {
  if (one.state.peek() !== "none") return;
  one.state.value = "loading";
  const { generation } = one;
  const read = async <T>(path: string, take: (answer: T) => void) => {
    const answer = await get<T>(at(one, path));
    if (one.generation === generation) take(answer);
  };
  try {
    await Promise.all([
      read<Results | null>("results", (results) => {
        one.results.value = results;
      }),
      read<Evaluations>("evaluations", (evaluations) => takeEvaluations(one, evaluations)),
      read<Metrics>("metrics?points=500", (metrics) => takeMetrics(one, metrics)),
      read<Configs>("configs", (configs) => {
        one.configs.value = configs;
      }),
    ]);
    if (one.generation !== generation) return;
    one.state.value = "ready";
    failure.value = null;
  } catch (error) {
    if (one.generation !== generation) return;
    failure.value = (error as Error).message;
    // Shown again, it is read again; not at once, as the fault may stay.
    setTimeout(() => {
      if (one.generation === generation) one.state.value = "none";
    }, 2000);
  }
}

function takeMetrics(one: Study, metrics: Metrics): void {
  for (const columns of metrics.runs) {
    // What came by event while this was on its way stays: rows are told apart by step and attempt.
    const track = one.tracks.get(columns.run) ?? new Track();
    track.append(columns);
    one.tracks.set(columns.run, track);
  }
  one.tracksChanged.value++;
}

function takeEvaluations(one: Study, read: Evaluations): void {
  for (const columns of read.runs) addEvaluations(one, columns);
  one.evaluationsChanged.value++;
}

function addEvaluations(one: Study, columns: EvaluationColumns): void {
  const rows = one.evaluations.get(columns.run) ?? new Map<number, EvaluationRow>();
  one.evaluations.set(columns.run, rows);
  for (let i = 0; i < columns.step.length; i++) {
    const row: EvaluationRow = {
      step: numberOf(columns.step[i]),
      tokens: numberOf(columns.tokens[i]),
      attempt: numberOf(columns.attempt[i]),
      time_s: numberOf(columns.time_s[i]),
      pflops_days: numberOf(columns.pflops_days[i]),
      pflops_days_attended: numberOf(columns.pflops_days_attended[i]),
      lm_loss: numberOf(columns.lm_loss[i]),
      buckets: columns.buckets.map((bucket) => numberOf(bucket[i])),
    };
    // A curves table may have no steps: its rows then keep their order.
    const key = Number.isFinite(row.step) ? row.step : rows.size;
    const before = rows.get(key);
    if (!before || !(before.attempt > row.attempt)) rows.set(key, row);
  }
}

/** A finer copy of one run between two steps, for a zoomed chart; null on a frozen page. */
export async function finer(one: Study, run: string, from: number, to: number): Promise<Track | null> {
  if (connection.peek() === "frozen") return null;
  const query = `metrics?run=${encodeURIComponent(run)}&points=2000&from=${from}&to=${to}`;
  const [columns] = (await get<Metrics>(at(one, query))).runs;
  if (!columns) return null;
  const track = new Track();
  track.append(columns);
  return track;
}

function follow(from: string): void {
  endEvents?.();
  endEvents = null;
  cursor = from;
  if (document.visibilityState === "hidden") return;
  endEvents = listen(new URL("api/events", document.baseURI).href, from, (heard) => {
    if (heard.kind === "open") connection.value = "live";
    else if (heard.kind === "lost") {
      connection.value = "lost";
      // Closed for good (the server went away for long, or refuses): start again.
      if (heard.forGood) readAllAgain();
    } else {
      if (heard.cursor !== "") cursor = heard.cursor;
      waiting.push(JSON.parse(heard.change) as Change);
      // One that comes alone is applied at once.
      if (!scheduled) setTimeout(applyWaiting, Math.max(0, applied + PACE - performance.now()));
      scheduled = true;
    }
  });
}

/** Changes are applied together, at most this often (ms), so that many runs cost no more than one. */
const PACE = 30;
let waiting: Change[] = [];
let scheduled = false;
let applied = 0;

function applyWaiting(): void {
  scheduled = false;
  applied = performance.now();
  const changes = waiting;
  waiting = [];
  const runs = new Map<Study, Map<string, RunView | null>>();
  const moved = new Set<Signal<number>>();
  const changed = (one: Study) => {
    const views = runs.get(one) ?? new Map<string, RunView | null>();
    runs.set(one, views);
    return views;
  };
  for (const change of changes) {
    if (change.kind === "reset") {
      void readAll();
      return;
    }
    const one = find(change.study);
    if (change.kind === "study") {
      if (one) {
        one.facts.value = change.facts;
        // Its records had not been read to the end when it was loaded.
        if (one.state.peek() === "ready" && !change.facts.loading) {
          forget(one);
          if (one === study.peek()) void load(one);
        }
      } else studies.value = [...studies.peek(), newStudy(change.facts)];
      continue;
    }
    if (!one) continue;
    if (change.kind === "run") changed(one).set(change.run.id, change.run);
    else if (change.kind === "gone") {
      if (change.run === undefined) studies.value = studies.peek().filter((other) => other !== one);
      else {
        changed(one).set(change.run, null);
        one.tracks.delete(change.run);
        one.evaluations.delete(change.run);
        moved.add(one.tracksChanged).add(one.evaluationsChanged);
      }
    } else if (one.state.peek() === "none") {
      // Not shown yet: it is read whole when it is.
    } else if (change.kind === "points") {
      const track = one.tracks.get(change.points.run) ?? new Track();
      one.tracks.set(change.points.run, track);
      track.append(change.points);
      moved.add(one.tracksChanged);
    } else if (change.kind === "evaluation") {
      addEvaluations(one, change.evaluations);
      moved.add(one.evaluationsChanged);
    } else if (change.kind === "results") {
      void get<Results | null>(at(one, "results"))
        .then((results) => {
          one.results.value = results;
        })
        .catch(() => {});
      // What a finished run measured beside its losses comes with its configuration.
      void get<Configs>(at(one, "configs"))
        .then((configs) => {
          one.configs.value = configs;
        })
        .catch(() => {});
    }
  }
  for (const [one, views] of runs) {
    const kept = one.runs.peek().map((run) => views.get(run.id) ?? (views.has(run.id) ? null : run));
    const known = new Set(one.runs.peek().map((run) => run.id));
    const added = [...views].flatMap(([id, run]) => (run && !known.has(id) ? [run] : []));
    one.runs.value = [...kept.filter((run) => run !== null), ...added];
  }
  for (const counter of moved) counter.value++;
}

/** What was read of a study may no longer be there: it is read again when it is shown. */
function forget(one: Study): void {
  one.generation++;
  one.tracks.clear();
  one.evaluations.clear();
  one.state.value = "none";
}

/**
 * The study's evaluations as rows of a curves table: those of the given buckets (indices), or of all positions for
 * null. Read `evaluationsChanged` beside it.
 */
export function curvePoints(one: Study, buckets: readonly (number | null)[]): CurvePoint[] {
  const facts = one.facts.value;
  const points: CurvePoint[] = [];
  for (const run of one.runs.value) {
    const rows = [...(one.evaluations.get(run.id)?.values() ?? [])];
    if (!rows.every((row, i) => i === 0 || !(row.step < rows[i - 1]!.step)))
      rows.sort((a, b) => a.step - b.step);
    for (const row of rows) {
      const known = (value: number) => (Number.isFinite(value) ? value : undefined);
      const shared = {
        attention: run.attention,
        model: run.model,
        run: run.id,
        ...(run.seed === null ? {} : { seed: run.seed }),
        step: known(row.step),
        tokens: known(row.tokens),
        parameters: run.parameters ?? undefined,
        time_s: known(row.time_s),
        pflops_days: known(row.pflops_days) ?? null,
        pflops_days_attended: known(row.pflops_days_attended),
      };
      for (const index of buckets) {
        const lm_loss = index === null ? row.lm_loss : row.buckets[index]!;
        if (!(lm_loss > 0 && Number.isFinite(lm_loss))) continue;
        const { position_start, position_end } =
          index === null ? { position_start: null, position_end: null } : facts.buckets[index]!;
        points.push({ ...shared, position_start, position_end, lm_loss });
      }
    }
  }
  return points;
}
