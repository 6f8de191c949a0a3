/** One study's folder as it stands, kept up to date: what changes is told to the journal. */
import { join } from "node:path";
import { bucketLabel, distinctBuckets, headlineBucket } from "../fit/points.ts";
import { fewOf, orderAttentions } from "../fit/words.ts";
import { attentionColours, attentionTitles } from "../report/labels.ts";
import {
  listRuns,
  missingRuns,
  paths,
  readStudyFile,
  type StudyFile,
  studyInWords,
} from "../study/folder.ts";
import { fittedRuns } from "../study/laws.ts";
import type {
  BucketView,
  Configs,
  Evaluations,
  Metrics,
  Models,
  ModelView,
  Results,
  RunView,
  StudyConfig,
  StudyFacts,
  StudyView,
} from "./api.ts";
import type { FitAnswer, FitInput } from "./fit-worker.ts";
import { checkInside, readJsonInside, stateOf } from "./inside.ts";
import type { Journal } from "./journal.ts";
import { modelView, weightBytes, weightStream } from "./model.ts";
import { fitOf, type Laws, resultsOf } from "./results.ts";
import { type BucketBounds, type Found, RunFolder, reasonOf } from "./run.ts";

/** Appended steps that are sent one by one; more at once (a run copied in) are thinned to these. */
const MOST_SENT = 2000;
/** Of all runs in one answer. */
const MOST_STEPS = 100_000;
const SIZES_OF_A_LAW = 3;
const MOST_LAWS = 2 ** 26;
const MOST_STUDY = 2 ** 24;

export class Study {
  readonly id: string;
  /** A real path. */
  readonly folder: string;
  readonly #journal: Journal;
  readonly #runs = new Map<string, { readonly folder: RunFolder; sent: string }>();
  #file: StudyFile | null = null;
  #fileSeen = "";
  #laws: Laws | null = null;
  #lawsSeen = "";
  /** What the laws now shown, or that could not be fitted, are those of. */
  #lawsOf = "";
  readonly #problems = new Map<string, string>();
  #buckets: BucketView[] = [];
  #facts = "";
  #loading = true;

  constructor(id: string, folder: string, journal: Journal) {
    this.id = id;
    this.folder = folder;
    this.#journal = journal;
    this.#refreshFiles();
    this.#listRuns();
    for (const { folder: run } of this.#runs.values()) run.refreshFacts();
  }

  get runs(): Iterable<string> {
    return this.#runs.keys();
  }

  /** Reads what changed in the folder, or (given names) in these runs. The first time, everything, and quietly. */
  async refresh(names: Iterable<string> | null): Promise<void> {
    if (names === null) {
      this.#refreshFiles();
      this.#listRuns();
    }
    for (const name of names ?? [...this.#runs.keys()]) {
      const run = this.#runs.get(name);
      if (run === undefined) continue;
      const found = await run.folder.refresh();
      if (!this.#loading) this.#tell(name, found);
    }
    if (this.#loading) {
      this.#loading = false;
      this.#gatherBuckets();
      this.#tellFacts();
      for (const name of this.#runs.keys())
        this.#tell(name, { steps: [], evaluations: [], rewritten: false });
    }
    this.#tellFacts();
  }

  /** Something that should not have happened, to be seen and not to end the server. */
  note(error: unknown): void {
    this.#problems.set("fault", `a fault in mobalab itself: ${(error as Error).message}`);
    this.#tellFacts();
  }

  /** Tells that the study is no longer there. */
  end(): void {
    this.#journal.add({ kind: "gone", study: this.id });
  }

  view(): StudyView {
    return {
      ...this.#factsNow(),
      runs: [...this.#runs.values()].map(({ folder }) => folder.view(this.#device)),
    };
  }

  /** Null when there is no such run. */
  metrics(points: number, only: { run: string; from: number; to: number } | null): Metrics | null {
    if (only !== null && !this.#runs.has(only.run)) return null;
    const runs = only === null ? [...this.#runs.values()] : [this.#runs.get(only.run)!];
    const most = Math.max(2, Math.min(points, Math.floor(MOST_STEPS / runs.length)));
    return {
      cursor: this.#journal.cursor,
      runs: runs.map(({ folder: { id, steps } }) => {
        const [start, end] = only === null ? [0, steps.length] : steps.range(only.from, only.to);
        return steps.columns(id, steps.thin(most, start, end), end - start);
      }),
    };
  }

  evaluations(): Evaluations {
    return {
      cursor: this.#journal.cursor,
      runs: [...this.#runs.values()].map(({ folder }) => folder.evaluations(this.#buckets)),
    };
  }

  configs(): Configs {
    return {
      runs: [...this.#runs.values()].map(({ folder }) => ({
        run: folder.id,
        config: folder.config,
        recall: folder.recall,
        truncated: folder.truncated,
      })),
    };
  }

  models(): Models {
    return {
      models: [...this.#runs].flatMap(([run, { folder }]) => {
        const bytes = weightBytes(this.folder, paths.run(this.folder, run));
        return bytes === null ? [] : [{ run, attention: folder.attention, bytes }];
      }),
    };
  }

  /** Null when there is no such run or no model that a page can compute with. */
  model(run: string): ModelView | null {
    const known = this.#runs.get(run);
    if (known === undefined) return null;
    const { dataset } = (known.folder.config ?? {}) as { dataset?: unknown };
    return modelView(this.folder, paths.run(this.folder, run), run, dataset);
  }

  /** Null as `model`. */
  weights(run: string): ReturnType<typeof weightStream> {
    return this.#runs.has(run) ? weightStream(this.folder, paths.run(this.folder, run)) : null;
  }

  results(): Results | null {
    return this.#laws === null ? null : { cursor: this.#journal.cursor, ...this.#laws };
  }

  /**
   * What laws should be fitted to, when other runs have finished than they know, or with other losses (times of files say
   * nothing: a copy's are others): `key` names it. Null when they are those of the runs that are there, or no attention
   * has the three sizes that a law needs.
   */
  get unfitted(): { readonly key: string; readonly input: FitInput } | null {
    if (this.#loading) return null;
    const runs = [...this.#runs.values()].map(({ folder }) => folder);
    const ends = runs.map((run) => run.end);
    const key = JSON.stringify(fittedRuns(ends));
    if (key === this.#lawsOf) return null;
    const sizes = new Map<string, Set<string>>();
    for (const run of runs.filter((_, i) => ends[i].finished)) {
      const { model } = run.view(null);
      sizes.set(run.attention, (sizes.get(run.attention) ?? new Set()).add(model));
    }
    if (![...sizes.values()].some((models) => models.size >= SIZES_OF_A_LAW)) return null;
    const foreign = runs.flatMap(({ id: name, foreign }) =>
      foreign === null ? [] : [{ name, reason: foreign }],
    );
    const left = new Set(foreign.map(({ name }) => name));
    const names = runs.map(({ id }) => id);
    return {
      key,
      input: {
        folder: this.folder,
        names: names.filter((name) => !left.has(name)),
        unreadable: [...foreign, ...missingRuns(this.#file, names)],
      },
    };
  }

  /** Takes the laws that were fitted to what `unfitted` said. */
  takeLaws(key: string, answer: FitAnswer): void {
    this.#lawsOf = key;
    this.#attempt("laws", () => {
      if ("failure" in answer) throw new Error(`cannot be fitted: ${answer.failure}`);
      this.#laws = answer.laws;
      this.#problems.delete("laws.json");
    });
    this.#journal.add({ kind: "results", study: this.id });
    this.#tellFacts();
  }

  get #device(): string | null {
    return this.#file?.host.device ?? null;
  }

  #refreshFiles(): void {
    const study = paths.study(this.folder);
    const state = stateOf(study);
    const seen = state === null ? "" : `${state.id} ${state.size} ${state.modified}`;
    if (seen !== this.#fileSeen || state === null) {
      this.#fileSeen = seen;
      this.#attempt("study.json", () => {
        if (state === null) {
          this.#file = null;
          throw new Error("is not there");
        }
        // Twice, because only the first asks where the path leads and how much is there.
        readJsonInside(this.folder, study, MOST_STUDY);
        this.#file = readStudyFile(this.folder);
      });
    }
    const laws = join(this.folder, "laws.json");
    const lawsState = stateOf(laws);
    const lawsSeen = lawsState === null ? "" : `${lawsState.id} ${lawsState.size} ${lawsState.modified}`;
    if (lawsSeen === this.#lawsSeen) return;
    this.#lawsSeen = lawsSeen;
    this.#lawsOf = "";
    this.#laws = null;
    this.#attempt("laws.json", () => {
      if (lawsState === null) return;
      const fit = fitOf(readJsonInside(this.folder, laws, MOST_LAWS));
      try {
        this.#laws = resultsOf(fit, new Date(lawsState.modified));
        this.#lawsOf = JSON.stringify(fit.fitted_runs ?? null);
      } catch {
        throw new Error("does not hold laws as mobalab writes them");
      }
    });
    this.#journal.add({ kind: "results", study: this.id });
  }

  #listRuns(): void {
    let names: string[] = [];
    this.#attempt("runs", () => {
      if (stateOf(paths.runs(this.folder)) === null) return;
      checkInside(this.folder, paths.runs(this.folder));
      names = listRuns(this.folder, this.#file);
    });
    const missing = missingRuns(this.#file, names);
    if (missing.length === 0) this.#problems.delete("missing");
    else
      this.#problems.set(
        "missing",
        `study.json lists runs whose config.json is missing: ${fewOf(missing.map(({ name }) => name.slice(0, 200)))}`,
      );
    const known = new Map(this.#runs);
    this.#runs.clear();
    for (const name of names) {
      const run = known.get(name) ?? {
        folder: new RunFolder(this.folder, paths.run(this.folder, name), name),
        sent: "",
      };
      this.#runs.set(name, run);
    }
    for (const name of known.keys()) {
      if (!this.#runs.has(name)) this.#journal.add({ kind: "gone", study: this.id, run: name });
    }
  }

  /** Runs `read`; what it throws becomes a note about the file. */
  #attempt(file: string, read: () => void): void {
    try {
      read();
      this.#problems.delete(file);
    } catch (error) {
      const { message } = error as Error;
      const { code } = error as NodeJS.ErrnoException;
      const reason = code === undefined ? message.replaceAll(`${this.folder}/`, "") : reasonOf(error);
      this.#problems.set(file, reason.startsWith(file) ? reason : `${file} ${reason}`);
    }
  }

  #tell(name: string, { steps, evaluations, rewritten }: Found): void {
    const run = this.#runs.get(name);
    if (run === undefined) return;
    const { folder } = run;
    if (rewritten) this.#journal.add({ kind: "reset" });
    if (evaluations.length > 0) {
      const before = this.#buckets.length;
      if (this.#gatherBuckets()) {
        // Columns sent before no longer stand beside the same buckets.
        if (before > 0) this.#journal.add({ kind: "reset" });
        this.#tellFacts();
      }
      this.#journal.add({
        kind: "evaluation",
        study: this.id,
        evaluations: folder.evaluations(
          this.#buckets,
          [...new Set(evaluations)].sort((a, b) => a - b),
        ),
      });
    }
    if (steps.length > 0) {
      const ordered = [...new Set(steps)].sort((a, b) => a - b);
      const indices =
        ordered.length > MOST_SENT ? folder.steps.thin(MOST_SENT) : folder.steps.indicesOf(ordered);
      this.#journal.add({
        kind: "points",
        study: this.id,
        points: folder.steps.columns(name, indices, folder.steps.length),
      });
    }
    const view: RunView = folder.view(this.#device);
    const text = JSON.stringify(view);
    if (text !== run.sent) {
      run.sent = text;
      this.#journal.add({ kind: "run", study: this.id, run: view });
    }
  }

  /** True when they changed. */
  #gatherBuckets(): boolean {
    const all = [...this.#runs.values()].map(({ folder }) => folder.buckets);
    const distinct = distinctBuckets(all.flatMap((buckets) => [...buckets])) as BucketBounds[];
    const buckets = distinct.map((bucket) => ({ ...bucket, label: bucketLabel(bucket) }));
    const changed = JSON.stringify(buckets) !== JSON.stringify(this.#buckets);
    this.#buckets = buckets;
    return changed;
  }

  #tellFacts(): void {
    const facts = this.#factsNow();
    const text = JSON.stringify(facts);
    if (text === this.#facts) return;
    this.#facts = text;
    this.#journal.add({ kind: "study", study: this.id, facts });
  }

  #factsNow(): StudyFacts {
    const runs = [...this.#runs.values()].map(({ folder }) => folder);
    const attentions = orderAttentions(runs.map((run) => run.attention));
    const titles = attentionTitles(attentions);
    const colours = attentionColours(attentions);
    const buckets = this.#buckets;
    const lead = buckets.length > 0 ? headlineBucket(buckets) : null;
    const attended = runs.some((run) => run.hasAttended);
    return {
      id: this.id,
      name: this.#file?.name ?? this.id,
      config: this.#file && configOf(this.#file),
      attentions: attentions.map((label, index) => ({
        label,
        title: titles.get(label)!,
        colour: colours.get(label)!,
        index,
      })),
      conventions: attended ? ["6ND", "attended"] : ["6ND"],
      buckets,
      headline:
        lead &&
        buckets.findIndex(
          (bucket) =>
            bucket.position_start === lead.position_start && bucket.position_end === lead.position_end,
        ),
      loading: this.#loading,
      notes: [...this.#problems.values()],
    };
  }
}

function configOf(file: StudyFile): StudyConfig {
  const { source, hardware, version } = studyInWords(file);
  const { created, command, context, tokenizer, rule } = file;
  return { created, version, command, context, tokenizer, source, rule, hardware, device: file.host.device };
}
