/** One opened card: its facts, its context and the stream that all operations are enqueued on. */
import { InputError, RunError } from "../../errors.ts";
import { DeviceAttribute, type Driver } from "./driver.ts";

export interface CardFacts {
  readonly ordinal: number;
  /** "NVIDIA H200". */
  readonly name: string;
  /** Compute capability, 10 * major + minor: 90 on Hopper. */
  readonly capability: number;
  readonly multiprocessors: number;
  /** The most dynamic shared memory that a block can have. */
  readonly sharedBytes: number;
  readonly l2Bytes: number;
  readonly totalBytes: number;
}

/** The oldest cards that the kernels are written for (bf16 on tensor cores, asynchronous copies). */
export const OLDEST_CAPABILITY = 80;

/** "9.0" of 90. */
export function capabilityText(capability: number): string {
  return (capability / 10).toFixed(1);
}

export function cardFacts(driver: Driver, ordinal: number): CardFacts {
  const device = driver.deviceGet(ordinal);
  const ask = (attribute: number) => driver.deviceAttribute(device, attribute);
  return {
    ordinal,
    name: driver.deviceName(device),
    capability: 10 * ask(DeviceAttribute.major) + ask(DeviceAttribute.minor),
    multiprocessors: ask(DeviceAttribute.multiprocessors),
    sharedBytes: ask(DeviceAttribute.sharedBytesPerBlock),
    l2Bytes: ask(DeviceAttribute.l2Bytes),
    totalBytes: driver.totalBytes(device),
  };
}

/**
 * `run`: operations are enqueued. `plan`: they only load kernels, choose algorithms and size scratch, so that
 * recording them afterwards allocates nothing. `record`: they become nodes of a graph.
 */
export type Mode = "run" | "plan" | "record";

/** Between two looks at a card that is waited for; its queue is filled a step ahead meanwhile. */
const LOOK_MS = 0.1;
/** What nobody wakes. */
const NEVER = new Int32Array(new SharedArrayBuffer(4));

/** The context that the driver last made current for this thread; several cards may be open. */
let current: bigint | null = null;

export class Device {
  readonly driver: Driver;
  readonly card: CardFacts;
  readonly stream: bigint;
  mode: Mode = "run";
  /** With peers: called again and again while the card is waited for; throws when it would be waited for in vain. */
  watch: (() => void) | null = null;
  readonly #device: number;
  readonly #context: bigint;
  #closed = false;

  /** Throws `InputError` when there is no such card, or it is too old. */
  constructor(driver: Driver, ordinal: number) {
    const count = driver.deviceCount();
    if (!Number.isSafeInteger(ordinal) || ordinal < 0 || ordinal >= count) {
      const there =
        count === 0 ? "no CUDA card was found" : `there are ${count} CUDA cards, 0 to ${count - 1}`;
      throw new InputError(`the device cuda:${ordinal} cannot be used: ${there}`);
    }
    this.driver = driver;
    this.card = cardFacts(driver, ordinal);
    const { name, capability } = this.card;
    if (capability < OLDEST_CAPABILITY) {
      throw new InputError(
        `cuda:${ordinal} (${name}) has compute capability ${capabilityText(capability)}, expected ${capabilityText(OLDEST_CAPABILITY)} or newer: there are no kernels for its architecture`,
      );
    }
    this.#device = driver.deviceGet(ordinal);
    this.#context = driver.retainContext(this.#device);
    this.activate();
    this.stream = driver.createStream();
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Makes this card the one that driver calls go to. Throws once it is closed. */
  activate(): void {
    if (this.#closed) throw new RunError(`the backend cuda:${this.card.ordinal} is closed`);
    if (current === this.#context) return;
    this.driver.setContext(this.#context);
    current = this.#context;
  }

  /** Refuses what cannot be recorded. */
  checkNotRecording(what: string): void {
    if (this.mode !== "run")
      throw new RangeError(`record: ${what} inside the recorded operations cannot be replayed`);
  }

  synchronize(): void {
    this.checkNotRecording("synchronize");
    this.activate();
    this.waitForStream(this.stream);
  }

  waitForStream(stream: bigint): void {
    if (!this.watch) this.driver.synchronizeStream(stream);
    else while (!this.driver.streamDone(stream)) this.#look();
  }

  waitForEvent(event: bigint): void {
    if (!this.watch) this.driver.synchronizeEvent(event);
    else while (!this.driver.eventDone(event)) this.#look();
  }

  #look(): void {
    this.watch?.();
    Atomics.wait(NEVER, 0, 0, LOOK_MS);
  }

  /** Waits for the card whatever became of its work, unless that is in vain: for closing. */
  drain(): void {
    this.activate();
    try {
      this.waitForStream(this.stream);
    } catch {
      // It has been told where it mattered.
    }
  }

  close(): void {
    this.activate();
    this.driver.destroyStream(this.stream);
    this.driver.releaseContext(this.#device);
    this.#closed = true;
    current = null;
  }
}
