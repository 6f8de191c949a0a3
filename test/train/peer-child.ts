/**
 * One of the processes of a run on the CPU: run folder, folder for sums, and optionally a rank and a step at which it
 * fails. Stops, speaks and ends as `mobalab train` does.
 */
import { exitCodeOf, sentenceOf } from "../../src/cli/errors.ts";
import { RunError } from "../../src/errors.ts";
import { meetingFromEnvironment } from "../../src/train/meeting.ts";
import { train } from "../../src/train/run.ts";
import { withPeers } from "./file-peers.ts";
import { openBackend } from "./run-folder.ts";

const [folder, sums, failing, failingStep] = process.argv.slice(2);
const meeting = meetingFromEnvironment()!;
const abort = new AbortController();
process.once("disconnect", () => abort.abort());
try {
  const backend = withPeers(openBackend(), meeting, sums);
  const { outcome, step } = await train(folder, {
    backend,
    resume: true,
    signal: abort.signal,
    onProgress(progress) {
      if (process.connected) process.send?.(progress, () => {});
      if (meeting.rank === Number(failing) && progress.step === Number(failingStep)) {
        throw new RunError("something went wrong");
      }
    },
  });
  if (outcome === "interrupted") throw new RunError(`interrupted at step ${step}`);
} catch (error) {
  process.stderr.write(`mobalab: ${sentenceOf(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
if (process.connected) process.disconnect();
