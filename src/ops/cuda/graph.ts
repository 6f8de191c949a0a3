/** Recording operations into a CUDA graph, so that a step is enqueued by one call. */
import { RunError } from "../../errors.ts";
import type { Device } from "./device.ts";

export class Graphs {
  readonly #device: Device;
  readonly #graphs: bigint[] = [];

  constructor(device: Device) {
    this.#device = device;
  }

  /** Calls `body` twice: to plan (see `Mode`) and to record. */
  record(body: () => void): () => void {
    const device = this.#device;
    const { driver, stream } = device;
    device.checkNotRecording("record");
    device.activate();
    device.mode = "plan";
    try {
      body();
    } finally {
      device.mode = "run";
    }
    driver.beginCapture(stream);
    device.mode = "record";
    let done = false;
    let graph: bigint | null = null;
    try {
      body();
      done = true;
    } finally {
      device.mode = "run";
      // Also after an error: the stream is of no use while it records.
      graph = driver.endCapture(stream);
      if (!done && graph !== null) driver.destroyGraph(graph);
    }
    if (graph === null) throw new RunError("recording operations failed: the card refused one of them");
    const executable = driver.instantiate(graph);
    this.#graphs.push(executable);
    return () => {
      device.checkNotRecording("replaying");
      device.activate();
      driver.launchGraph(executable, stream);
    };
  }

  close(): void {
    this.#device.activate();
    for (const executable of this.#graphs) this.#device.driver.destroyExecutable(executable);
    this.#graphs.length = 0;
  }
}
