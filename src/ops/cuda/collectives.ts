/**
 * NCCL: sums over the processes that train one run, each on a card of its own. They run on a stream beside that of
 * the operations and are ordered with it by events, so they overlap with the backward pass and can be recorded.
 */
import type { LibraryHandle } from "koffi";
import { InputError, RunError } from "../../errors.ts";
import type { Peers, Tensor } from "../contract.ts";
import type { Pointer } from "./context.ts";
import type { Device } from "./device.ts";
import { bindFunctions, type Raw } from "./driver.ts";
import { ffi } from "./ffi.ts";
import { openLibrary } from "./library.ts";
import type { Memory } from "./memory.ts";

/** How the processes of a run find each other and know of each other's end. */
export interface Meeting {
  readonly rank: number;
  readonly count: number;
  /** Waits for all processes and gives each the bytes of process 0, which is the one that passes some. */
  share(bytes: Uint8Array | null): Uint8Array;
  /** Which other process has ended, in words; null while all live. */
  lost(): string | null;
}

/** NCCL functions that return a code, parameters as in driver.ts. */
export const NCCL_FUNCTIONS = {
  ncclGetVersion: "p",
  ncclGetUniqueId: "p",
  ncclAllReduce: "hhniihh",
  ncclCommGetAsyncError: "hp",
  ncclCommDestroy: "h",
  ncclCommAbort: "h",
} as const;

export interface RawNccl extends Readonly<Record<keyof typeof NCCL_FUNCTIONS, Raw>> {
  /** Takes the 128 bytes of the id by value. */
  ncclCommInitRank(
    out: BigUint64Array,
    count: number,
    id: { readonly internal: Uint8Array },
    rank: number,
  ): number;
  ncclGetLastError(communicator: bigint): string | null;
}

const ID_BYTES = 128;
const FLOAT32 = 7;
const SUM = 0;
const IN_PROGRESS = 7;

const MEANINGS: Readonly<Record<number, string>> = {
  1: "a call to CUDA failed",
  2: "a call to the operating system failed",
  3: "a fault in NCCL itself",
  4: "an argument is out of range",
  5: "it was used in a way that it forbids",
  6: "another process ended, or the connection to it broke",
  8: "another process took too long",
};

/** Elements of the sum that makes NCCL connect the cards: larger ones take the same way. */
const CONNECTING_ELEMENTS = 8 << 20;
/** Milliseconds between two looks at the other processes while the card is waited for. */
const WATCH_MS = 20;

let idType: ReturnType<ReturnType<typeof ffi>["struct"]> | undefined;

/** The functions of an opened libnccl. Throws `InputError` naming one that it lacks. */
function rawNccl(library: LibraryHandle, path: string): RawNccl {
  const { array, struct } = ffi();
  idType ??= struct("ncclUniqueId", { internal: array("uint8_t", ID_BYTES) });
  const functions = bindFunctions(library, path, NCCL_FUNCTIONS);
  try {
    return {
      ...functions,
      ncclCommInitRank: library.func("ncclCommInitRank", "int32_t", ["void *", "int32_t", idType, "int32_t"]),
      ncclGetLastError: library.func("ncclGetLastError", "str", ["uint64_t"]),
    };
  } catch (error) {
    throw new InputError(`${path} cannot be used: ${(error as Error).message}`);
  }
}

/** Throws `InputError` when there is no NCCL, or one that is too old. */
export function openNccl(): RawNccl {
  // All processes of a run are on this machine: NCCL need not listen for others.
  process.env.NCCL_SOCKET_IFNAME ??= "=lo";
  const { handle, path } = openLibrary("nccl");
  return rawNccl(handle, path);
}

/** "2.30.7" of 23007. */
export function ncclVersion(raw: Pick<RawNccl, "ncclGetVersion">): string {
  const out = new Int32Array(new ArrayBuffer(4));
  raw.ncclGetVersion(out);
  return `${Math.floor(out[0] / 10_000)}.${Math.floor(out[0] / 100) % 100}.${out[0] % 100}`;
}

export class Collectives implements Peers {
  readonly rank: number;
  readonly count: number;
  readonly #device: Device;
  readonly #memory: Memory;
  readonly #raw: RawNccl;
  readonly #meeting: Meeting;
  readonly #communicator: bigint;
  readonly #stream: bigint;
  /** What a sum waits for, and what waits for the sums. */
  readonly #before: bigint;
  readonly #after: bigint;
  readonly #out = new BigInt64Array(new ArrayBuffer(8));
  /** There are sums that nothing waits for yet. */
  #open = false;
  #looked = 0;
  #lost: string | null = null;

  /** Waits for the other processes. Throws `RunError` when NCCL cannot connect the cards. */
  constructor(device: Device, memory: Memory, raw: RawNccl, meeting: Meeting) {
    this.#device = device;
    this.#memory = memory;
    this.#raw = raw;
    this.#meeting = meeting;
    this.rank = meeting.rank;
    this.count = meeting.count;
    device.activate();
    let own: Uint8Array | null = null;
    if (this.rank === 0) {
      own = new Uint8Array(new ArrayBuffer(ID_BYTES));
      this.#check(raw.ncclGetUniqueId(own), "starting NCCL");
    }
    const internal = meeting.share(own);
    const out = new BigUint64Array(this.#out.buffer);
    this.#check(
      raw.ncclCommInitRank(out, this.count, { internal }, this.rank),
      `connecting ${this.count} cards by NCCL`,
    );
    this.#communicator = out[0];
    this.#stream = device.driver.createStream();
    this.#before = device.driver.createEvent();
    this.#after = device.driver.createEvent();
    device.watch = () => this.#watch();
  }

  sum(tensor: Tensor, from: number, to: number): void {
    this.#device.activate();
    const { pointer, dtype, length } = this.#memory.own(tensor);
    if (dtype !== "f32") throw new RangeError(`sum: the tensor is ${dtype}, expected f32`);
    if (!(Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from < to && to <= length)) {
      throw new RangeError(`sum: elements ${from} to ${to}, expected a part of the ${length} elements`);
    }
    const { driver, mode, stream } = this.#device;
    if (mode === "plan") {
      this.#connect(to - from);
      return;
    }
    driver.recordEvent(this.#before, stream);
    driver.waitEvent(this.#stream, this.#before);
    this.#open = true;
    this.#allReduce(pointer + BigInt(4 * from), to - from);
  }

  join(): void {
    if (!this.#open) return;
    this.#open = false;
    const { driver, stream } = this.#device;
    driver.recordEvent(this.#after, this.#stream);
    driver.waitEvent(stream, this.#after);
  }

  /** NCCL connects cards at the first sum of a kind, which is not to be while operations are recorded. */
  #connect(elements: number): void {
    const count = Math.min(elements, CONNECTING_ELEMENTS);
    this.#allReduce(this.#memory.scratch("NCCL", 4 * count), count);
    this.#device.waitForStream(this.#stream);
  }

  #allReduce(pointer: Pointer, elements: number): void {
    this.#check(
      this.#raw.ncclAllReduce(pointer, pointer, elements, FLOAT32, SUM, this.#communicator, this.#stream),
      `summing ${elements} values over ${this.count} cards`,
    );
  }

  #watch(): void {
    const now = performance.now();
    if (now - this.#looked < WATCH_MS) return;
    this.#looked = now;
    this.#lost ??= this.#meeting.lost() ?? this.#asyncError();
    if (this.#lost !== null) throw new RunError(`lost a process of this run: ${this.#lost}`);
  }

  #asyncError(): string | null {
    const code = new Int32Array(this.#out.buffer);
    this.#check(this.#raw.ncclCommGetAsyncError(this.#communicator, code), "asking NCCL for errors");
    return code[0] === 0 || code[0] === IN_PROGRESS ? null : this.#describe(code[0]);
  }

  #check(code: number, what: string): void {
    if (code !== 0) throw new RunError(`${what} failed: ${this.#describe(code)}`);
  }

  #describe(code: number): string {
    const meaning = MEANINGS[code] ?? `NCCL error ${code}`;
    const said = this.#raw.ncclGetLastError(0n)?.trim().replaceAll(/\s+/g, " ");
    return said ? `${meaning} (${said})` : meaning;
  }

  /**
   * After the recordings that hold sums are gone: NCCL waits for those. Sums that wait for a lost process are given
   * up.
   */
  close(): void {
    const { driver } = this.#device;
    this.#device.watch = null;
    if (this.#lost === null) this.#raw.ncclCommDestroy(this.#communicator);
    else this.#raw.ncclCommAbort(this.#communicator);
    driver.destroyEvent(this.#before);
    driver.destroyEvent(this.#after);
    driver.destroyStream(this.#stream);
  }
}
