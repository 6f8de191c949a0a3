/** The same training step in plain PyTorch (bench/torch_step.py), where a python3 with torch is installed. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { ModelConfig } from "../src/model/config.ts";

export interface TorchStep {
  readonly threads: number;
  readonly tokens_per_second: number;
  readonly torch: string;
}

/** Median step at each number of threads; empty, with a line that says so, without torch. */
export function torchSteps(model: ModelConfig, context: number, threads: readonly number[]): TorchStep[] {
  const script = fileURLToPath(new URL("torch_step.py", import.meta.url));
  const python = ["/usr/bin/python3", "python3"].find(
    (path) => spawnSync(path, ["-c", "import torch"]).status === 0,
  );
  if (!python) {
    console.log(
      "PyTorch: no python3 with torch here (Debian: apt-get install python3-torch libopenblas0-pthread)",
    );
    return [];
  }
  // OpenBLAS shall choose its kernels for this processor.
  const { OPENBLAS_CORETYPE: _, OPENBLAS_L2_SIZE: __, ...env } = process.env;
  return threads.map((count) => {
    const options = JSON.stringify({ ...model, context, steps: 3, threads: count });
    const { stdout, stderr, status } = spawnSync(python, [script, options], { encoding: "utf8", env });
    if (status !== 0) throw new Error(`torch_step.py failed: ${stderr.trim().split("\n").at(-1)}`);
    const { torch, seconds } = JSON.parse(stdout);
    const tokensPerSecond = context / seconds;
    console.log(
      `PyTorch ${torch}, ${count} threads: ${(1000 * seconds).toFixed(0)} ms, ${tokensPerSecond.toFixed(0)} tokens/s`,
    );
    return { threads: count, tokens_per_second: Math.round(tokensPerSecond), torch };
  });
}
