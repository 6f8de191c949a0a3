/** What the kill test kills: a process that trains, resuming, the run folder it is given; says "step" to its parent after each step. */
import { train } from "../../src/train/run.ts";
import { openBackend } from "./run-folder.ts";

const backend = openBackend();
await train(process.argv[2], { backend, resume: true, onProgress: () => process.send?.("step") });
backend.close();
process.disconnect?.();
