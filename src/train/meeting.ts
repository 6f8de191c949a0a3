/**
 * How the processes of one run on one machine find each other, and notice that one has ended. The environment names
 * them as launchers do (RANK, WORLD_SIZE, LOCAL_RANK); they meet in a folder, MOBALAB_MEETING, that is new for each
 * start: each leaves a file there that tells its process, and process 0 what NCCL needs to connect them.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { InputError, RunError } from "../errors.ts";
import { writeWhole } from "../files.ts";
import type { Meeting } from "../ops/cuda/index.ts";

export interface RankedMeeting extends Meeting {
  /** Which of the machine's devices, counted from the first that the run has. */
  readonly localRank: number;
}

interface Present {
  readonly pid: number;
  /** Base64, of process 0. */
  readonly bytes?: string;
}

/** Cards, their drivers and libraries are opened before a process comes to the meeting. */
const PATIENCE_SECONDS = 300;
const POLL_MS = 10;
const NEVER = new Int32Array(new SharedArrayBuffer(4));

/** Variables of the environment for one process of a run. */
export function rankEnvironment(folder: string, rank: number, count: number): Record<string, string> {
  return {
    RANK: String(rank),
    WORLD_SIZE: String(count),
    LOCAL_RANK: String(rank),
    MOBALAB_MEETING: folder,
  };
}

/** Null when this process trains alone. Throws `InputError` naming the variable that is wrong. */
export function meetingFromEnvironment(env: NodeJS.ProcessEnv = process.env): RankedMeeting | null {
  const whole = (name: string, least: number, below: number): number => {
    const value = Number(env[name]);
    if (!/^\d+$/.test(env[name] ?? "") || value < least || value >= below) {
      throw new InputError(
        `the environment has ${name}=${env[name] ?? ""}, expected a whole number from ${least} to ${below - 1}`,
      );
    }
    return value;
  };
  if (env.WORLD_SIZE === undefined) return null;
  const count = whole("WORLD_SIZE", 1, 1025);
  if (count === 1) return null;
  const rank = whole("RANK", 0, count);
  const localRank = whole("LOCAL_RANK", 0, count);
  const folder = env.MOBALAB_MEETING;
  if (!folder || !existsSync(folder)) {
    throw new InputError(
      `the environment has WORLD_SIZE=${count} and MOBALAB_MEETING=${folder ?? ""}, expected a folder that is new for this start and that all processes of the run see`,
    );
  }
  return new FolderMeeting(folder, rank, count, localRank);
}

class FolderMeeting implements RankedMeeting {
  readonly rank: number;
  readonly count: number;
  readonly localRank: number;
  readonly #folder: string;
  /** By rank, the processes met so far. */
  readonly #present = new Map<number, Present>();

  constructor(folder: string, rank: number, count: number, localRank: number) {
    this.#folder = folder;
    this.rank = rank;
    this.count = count;
    this.localRank = localRank;
  }

  share(bytes: Uint8Array | null): Uint8Array {
    const own: Present = {
      pid: process.pid,
      ...(bytes ? { bytes: Buffer.from(bytes).toString("base64") } : {}),
    };
    const began = performance.now();
    this.#meet(() => writeWhole(join(this.#folder, String(this.rank)), JSON.stringify(own)));
    this.#present.set(this.rank, own);
    while (this.#present.size < this.count) {
      for (let rank = 0; rank < this.count; rank++) {
        const file = join(this.#folder, String(rank));
        if (this.#present.has(rank) || !existsSync(file)) continue;
        this.#meet(() => this.#present.set(rank, JSON.parse(readFileSync(file, "utf8"))));
      }
      const lost = this.lost();
      if (lost !== null) throw new RunError(`lost a process of this run: ${lost}`);
      if (!existsSync(this.#folder)) throw new RunError(CANCELLED);
      if (performance.now() - began > 1000 * PATIENCE_SECONDS) {
        const missing = Array.from({ length: this.count }, (_, rank) => rank);
        throw new RunError(
          `after ${PATIENCE_SECONDS} s, these processes of the run are still missing: ${missing.filter((rank) => !this.#present.has(rank)).join(", ")} of 0 to ${this.count - 1}`,
        );
      }
      Atomics.wait(NEVER, 0, 0, POLL_MS);
    }
    return Buffer.from(this.#present.get(0)!.bytes!, "base64");
  }

  /** The folder goes when one of the processes has failed. */
  #meet(use: () => void): void {
    try {
      use();
    } catch (error) {
      throw existsSync(this.#folder) ? error : new RunError(CANCELLED);
    }
  }

  lost(): string | null {
    for (const [rank, { pid }] of this.#present) {
      if (rank !== this.rank && !alive(pid)) return `rank ${rank} (process ${pid}) has ended`;
    }
    return null;
  }
}

const CANCELLED = "another process of this run has ended before all had met";

/** One that has ended may still be listed, as a zombie (Z), until its parent looks. */
function alive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !"ZX".includes(stat[stat.lastIndexOf(")") + 2]);
  } catch {
    return false;
  }
}
