/** The studies served: found in the folders given, watched, and read again where something changed. */
import { existsSync, type FSWatcher, readdirSync, realpathSync, statSync, watch } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { Worker } from "node:worker_threads";
import { startWorker } from "../data/threads.ts";
import { InputError } from "../errors.ts";
import { packageVersion, paths } from "../study/folder.ts";
import type { Overview } from "./api.ts";
import type { FitAnswer } from "./fit-worker.ts";
import { Journal } from "./journal.ts";
import { Study } from "./study.ts";

/** Milliseconds between looks at everything: what the watchers miss (other machines' writes) is seen then. */
const LOOK_EVERY = 1000;
/** Milliseconds from a change to reading it: a writer's next line is often right behind. */
const SETTLE = 5;
/** More than this and the looks must do. */
const MOST_WATCHERS = 4000;

interface Open {
  readonly study: Study;
  /** Runs to read again; null: the whole folder. */
  dirty: Set<string> | null;
}

export class Library {
  readonly journal = new Journal();
  readonly #folders: readonly string[];
  /** By id. */
  readonly #open = new Map<string, Open>();
  readonly #watchers = new Map<string, FSWatcher>();
  #work: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #settling: NodeJS.Timeout | null = null;
  /** Fits the laws of one study at a time. */
  #fitting: Worker | null = null;
  #closed = false;

  /** Each folder is a study or holds studies. Throws `InputError` when one is missing or has none. */
  constructor(folders: readonly string[]) {
    this.#folders = folders.map((folder) => resolve(folder));
    for (const [i, folder] of this.#folders.entries()) {
      const given = folders[i];
      if (!existsSync(folder)) {
        throw new InputError(
          `${given}: there is no such folder; mobalab study quick --out ${given} makes one`,
        );
      }
      if (!statSync(folder).isDirectory()) {
        throw new InputError(`${given} is no folder; mobalab serve takes study folders, or folders of them`);
      }
      if (studiesIn(folder).length === 0) {
        throw new InputError(
          `${given} holds no study: there is no study.json in it or in its folders; mobalab study quick makes one`,
        );
      }
    }
    this.#find();
  }

  get size(): number {
    return this.#open.size;
  }

  study(id: string): Study | undefined {
    return this.#open.get(id)?.study;
  }

  overview(): Overview {
    return {
      cursor: this.journal.cursor,
      version: packageVersion(),
      time: new Date().toISOString(),
      studies: [...this.#open.values()].map(({ study }) => study.view()),
    };
  }

  /** Reads everything once. */
  async load(): Promise<void> {
    for (const open of this.#open.values()) {
      open.dirty = new Set();
      await open.study.refresh(null);
    }
  }

  /** Reads, and from then on follows what changes, until `close`. */
  follow(): void {
    this.#look();
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY);
  }

  close(): void {
    this.#closed = true;
    if (this.#timer) clearInterval(this.#timer);
    if (this.#settling) clearTimeout(this.#settling);
    for (const watcher of this.#watchers.values()) watcher.close();
    void this.#fitting?.terminate();
  }

  /** Studies that appeared or went away. */
  #find(): void {
    const found = new Map<string, string>();
    for (const folder of this.#folders.flatMap(studiesIn)) {
      let real: string;
      try {
        real = realpathSync(folder);
      } catch {
        continue;
      }
      if ([...found.values()].includes(real)) continue;
      const name = basename(folder);
      let id = name;
      for (let n = 2; found.has(id); n++) id = `${name}-${n}`;
      found.set(id, real);
    }
    for (const [id, { study }] of this.#open) {
      if (found.get(id) === study.folder) continue;
      this.#open.delete(id);
      study.end();
    }
    for (const [id, folder] of found) {
      if (this.#open.has(id)) continue;
      this.#open.set(id, { study: new Study(id, folder, this.journal), dirty: null });
    }
  }

  #look(): void {
    this.#find();
    for (const open of this.#open.values()) open.dirty = null;
    this.#watch();
    this.#start();
  }

  #start(): void {
    this.#work ??= this.#pump().finally(() => {
      this.#work = null;
      // What came in after the last study was looked at.
      if (!this.#closed && [...this.#open.values()].some(isDirty)) this.#start();
    });
  }

  async #pump(): Promise<void> {
    for (const open of [...this.#open.values()]) {
      if (this.#closed || !isDirty(open)) continue;
      const names = open.dirty;
      open.dirty = new Set();
      try {
        await open.study.refresh(names);
      } catch (error) {
        // A folder that goes away while it is read: the next look finds out.
        if ((error as NodeJS.ErrnoException).code === undefined) open.study.note(error);
      }
    }
    this.#fit();
  }

  /** Fits laws anew where runs finished, in a thread, one study after the other. */
  #fit(): void {
    if (this.#fitting !== null || this.#closed) return;
    for (const { study } of this.#open.values()) {
      const unfitted = study.unfitted;
      if (unfitted === null) continue;
      const { key, input } = unfitted;
      const worker = startWorker("../server/fit-worker", input);
      this.#fitting = worker;
      let answer: FitAnswer = { failure: "the fit ended without an answer" };
      worker.on("message", (message: FitAnswer) => {
        answer = message;
      });
      worker.on("error", (error) => {
        answer = { failure: error.message };
      });
      worker.on("exit", () => {
        this.#fitting = null;
        if (this.#closed) return;
        study.takeLaws(key, answer);
        this.#fit();
      });
      return;
    }
  }

  /** A watcher for each folder that files may appear or grow in. */
  #watch(): void {
    const wanted = new Map<string, () => void>();
    for (const folder of this.#folders) wanted.set(folder, () => this.#soon());
    for (const open of this.#open.values()) {
      const { folder } = open.study;
      const all = () => {
        open.dirty = null;
        this.#soon();
      };
      wanted.set(folder, all);
      wanted.set(paths.runs(folder), all);
      for (const name of open.study.runs) {
        wanted.set(paths.run(folder, name), () => {
          open.dirty?.add(name);
          this.#soon();
        });
      }
    }
    for (const [path, watcher] of this.#watchers) {
      if (wanted.has(path)) continue;
      watcher.close();
      this.#watchers.delete(path);
    }
    for (const [path, changed] of wanted) {
      if (this.#watchers.has(path) || this.#watchers.size >= MOST_WATCHERS) continue;
      try {
        const watcher = watch(path, changed);
        const drop = () => {
          watcher.close();
          this.#watchers.delete(path);
        };
        watcher.on("error", drop);
        // A folder that is replaced takes its watcher with it.
        watcher.on("change", (kind) => {
          if (kind === "rename" && !existsSync(path)) drop();
        });
        this.#watchers.set(path, watcher);
      } catch {
        // Not there, or the system has no more watchers: the looks must do.
      }
    }
  }

  #soon(): void {
    this.#settling ??= setTimeout(() => {
      this.#settling = null;
      this.#start();
    }, SETTLE);
  }
}

function isDirty({ dirty }: Open): boolean {
  return dirty === null || dirty.size > 0;
}

/** The folder itself when it is a study, else the studies in it, by name. */
function studiesIn(folder: string): string[] {
  if (existsSync(paths.study(folder)) || existsSync(paths.runs(folder))) return [folder];
  try {
    // A link may lead anywhere: what it leads to can be given by name.
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && existsSync(paths.study(join(folder, entry.name))))
      .map((entry) => entry.name)
      .sort(new Intl.Collator("en", { numeric: true }).compare)
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}
