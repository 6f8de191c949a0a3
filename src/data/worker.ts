/** A worker thread's side of `Threads`: does the tasks that arrive, one after the other. */
import { type MessagePort, parentPort } from "node:worker_threads";
import { Tasks } from "./tasks.ts";
import { type Answer, failureOf, type Request } from "./threads.ts";

const port = parentPort as MessagePort;
const tasks = new Tasks();

port.on("message", ({ name, input }: Request) => {
  let answer: Answer;
  try {
    answer = { output: tasks[name](input as never) };
  } catch (error) {
    answer = { failure: failureOf(error) };
  }
  port.postMessage(answer, buffersOf(answer));
});

/** The buffers that one array of the answer fills alone: they move instead of being copied. */
function buffersOf(value: unknown): ArrayBuffer[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  if (ArrayBuffer.isView(value)) {
    const { buffer, byteLength } = value;
    return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : [];
  }
  return Object.values(value).flatMap(buffersOf);
}
