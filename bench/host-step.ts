/**
 * What the host does in a training step on a card: a whole run at the 2.2M shape (8 x 16k tokens) on the null device,
 * where a step takes no time but the host's. What the stand-in for the driver costs is in it.
 *
 *   npm --prefix bench run host-step [-- --attention moba-b512-k3 --steps 300]
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { prepareDataset } from "../src/data/index.ts";
import { Random } from "../src/data/random.ts";
import { createNullBackend } from "../src/ops/cuda/null.ts";
import { train } from "../src/train/run.ts";
import type { RunConfig } from "../src/train/types.ts";
import { rounded, writeResult } from "./results.ts";
import { median } from "./timing.ts";

const { values } = parseArgs({
  options: {
    attention: { type: "string", default: "moba-b512-k3" },
    steps: { type: "string", default: "300" },
  },
});
const steps = Number(values.steps);
const config: RunConfig = {
  model: "2.2M",
  shape: {
    ...{ layers: 5, heads: 3, kvHeads: 3, headDim: 64, modelDim: 192, feedForward: 512, vocabulary: 8192 },
    ...{ ropeTheta: 10_000, normEpsilon: 1e-5, tiedOutput: false, keyConvolution: 0 },
  },
  attention: values.attention,
  dataset: "../data",
  ...{ context: 16_384, sequencesPerStep: 8, sequencesPerPass: 8, horizon: { steps } },
  optimizer: {
    ...{ learningRate: 2e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, maxNorm: 1 },
    ...{ schedule: "cosine", warmup: 0.1, decay: 0.2, finalShare: 0.1 },
  },
  ...{ buckets: 4, evaluations: 1, checkpointEvery: 0, recompute: false, seed: 7 },
};

const folder = mkdtempSync(join(tmpdir(), "mobalab-host-"));
try {
  const random = new Random(1);
  mkdirSync(join(folder, "text"));
  for (let i = 0; i < 40; i++) {
    const text = Buffer.alloc(20_000 + random.below(200_000)).map(() => 97 + random.below(26));
    writeFileSync(join(folder, "text", `${i}.txt`), text);
  }
  await prepareDataset({
    folder: join(folder, "data"),
    sources: [join(folder, "text")],
    tokenizer: "byte",
    context: config.context,
  });
  mkdirSync(join(folder, "run"));
  writeFileSync(join(folder, "run", "config.json"), JSON.stringify(config));
  const moments: { now: number; idle: number }[] = [];
  const backend = createNullBackend();
  await train(join(folder, "run"), {
    backend,
    onProgress() {
      moments.push({ now: performance.now(), idle: performance.eventLoopUtilization().idle });
      backend.mock.calls.length = 0;
      backend.mock.launches.length = 0;
    },
  });
  // Without the first third, which compiles the host code, and the last step, which evaluates.
  const counted = moments.slice(Math.ceil(steps / 3), -1);
  const each = (of: (moment: { now: number; idle: number }) => number) =>
    median(counted.slice(1).map((moment, i) => of(moment) - of(counted[i])));
  const [whole, busy] = [each(({ now }) => now), each(({ now, idle }) => now - idle)];
  console.log(
    `${values.attention}: the host is busy ${busy.toFixed(3)} ms a step; a step of the null device takes ${whole.toFixed(3)} ms, the rest of it waiting for batches`,
  );
  writeResult(`host-step-${values.attention}`, { ...values, busy_ms: rounded(busy) });
} finally {
  rmSync(folder, { recursive: true });
}
