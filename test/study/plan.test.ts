import { describe, expect, it } from "vitest";
import { createNullBackend } from "../../src/ops/cuda/null.ts";
import { estimateSeconds, makespan } from "../../src/study/calibrate.ts";
import { sameAsFull } from "../../src/study/laws.ts";
import { sharing } from "../../src/study/local.ts";
import { planRuns, runName } from "../../src/study/plan.ts";
import { PRESETS, preset } from "../../src/study/presets.ts";
import { factorOf, stepRule } from "../../src/study/rule.ts";
import { parseRunConfig } from "../../src/train/config.ts";
import { checkShares } from "../../src/train/peers.ts";
import { evaluationSteps } from "../../src/train/schedule.ts";

describe("the plan of a ladder", () => {
  it("has the report's sizes and tokens (Table 1)", () => {
    const runs = planRuns(preset("report-8k"), { vocabulary: 32768, maxDocuments: 1, device: "cpu" });
    expect(runs).toHaveLength(10);
    const full = runs.filter((run) => run.config.attention === "full");
    // 14 (4 * 1792^2 + 3 * 1792 * 4800) = 541.1M and so on, by hand, without norms.
    const millions = [541.1, 809.5, 1146.6, 1576.1, 2101.4];
    for (const [i, run] of full.entries()) {
      expect(Math.abs(run.parameters / 1e6 / millions[i] - 1)).toBeLessThan(2e-3);
    }
    expect(full.map((run) => Math.round(run.tokens / 1e8) / 10)).toEqual([10.8, 15.3, 20.6, 27.4, 36.9]);
    // 6 N D of the first size: 6 * 541.1e6 * 10.8e9 / 8.64e19.
    expect(full[0].pflopsDays).toBeCloseTo(0.406, 2);
  });

  it("gives both arms of a pair the same learning rate, batch and steps", () => {
    for (const ladder of PRESETS) {
      const runs = planRuns(ladder, { vocabulary: 256, maxDocuments: 4, device: "cpu" });
      for (const run of runs) {
        const twin = runs.find((other) => other.config.model === run.config.model);
        expect(run.config.optimizer).toEqual(twin?.config.optimizer);
        expect(run.steps).toBe(twin?.steps);
        expect(() => parseRunConfig(run.config, run.name)).not.toThrow();
      }
    }
  });

  it("has a step in runs of less than half of one", () => {
    const ladder = { ...preset("quick"), tokensPerParameter: 1e-9 };
    const sizes = ladder.sizes.map(({ name, depth }) => ({ name, depth }));
    const runs = planRuns({ ...ladder, sizes }, { vocabulary: 256, maxDocuments: 4, device: "cpu" });
    expect(runs.map(({ steps }) => steps)).toEqual(new Array(8).fill(1));
    for (const run of runs) expect(() => parseRunConfig(run.config, run.name)).not.toThrow();
  });

  it("says which attentions are full attention under another name, just where nothing is left out", () => {
    const attentions = [
      "full",
      "moba-b128-k4",
      "window-b64-k3",
      "moba-b128-k4+full@0.9",
      "moba-b128-k4/full:1",
    ];
    for (const context of [192, 256, 512, 640]) {
      const ladder = { ...preset("quick"), sizes: [{ name: "d2", depth: 2 }], attentions, context };
      const runs = planRuns(ladder, { vocabulary: 256, maxDocuments: 1, device: "cpu" });
      const said = sameAsFull(runs.map(({ config }) => config));
      const alike = attentions.filter(
        (label) => label !== "full" && runs.find((run) => run.config.attention === label)!.sparsity === 0,
      );
      expect(said.map((sentence) => sentence.split(" ")[0])).toEqual(alike);
      for (const sentence of said) expect(sentence).toMatch(new RegExp(`whole context of ${context};`));
    }
  });

  it("leaves at least half of the causal pairs unattended in MoBA's arm of the quick ladder", () => {
    const runs = planRuns(preset("quick"), { vocabulary: 256, maxDocuments: 4, device: "cpu" });
    for (const run of runs) {
      if (run.config.attention.startsWith("moba")) expect(run.sparsity).toBeGreaterThan(0.5);
      else expect(run.sparsity).toBe(0);
    }
  });

  it("cuts a step into passes that the cards of a run share evenly, and refuses to plan what they cannot", () => {
    const config = (sequencesPerStep: number, gpus: number) =>
      planRuns(
        { ...preset("report-8k"), sequencesPerStep },
        { vocabulary: 256, maxDocuments: 1, device: "cuda:0", gpus },
      )[0].config;
    // 65536 tokens a pass are 8 windows.
    expect([1, 2, 4, 8].map((gpus) => config(16, gpus).sequencesPerPass)).toEqual([8, 8, 4, 2]);
    expect(config(12, 2).sequencesPerPass).toBe(6);
    expect(() => checkShares(config(12, 2), 2)).not.toThrow();
    expect(() => checkShares(config(9, 2), 2)).toThrow(
      /expected a sequencesPerStep that is a multiple of 2$/,
    );
  });

  it("applies a schedule by its shares of the tokens", () => {
    const ladder = { ...preset("quick"), sizes: [{ name: "d2", depth: 2 }] };
    const of = (attention: string) =>
      planRuns({ ...ladder, attentions: [attention] }, { vocabulary: 256, maxDocuments: 1, device: "cpu" })[0]
        .pflopsDaysAttended;
    const mixed = 0.75 * of("moba-b128-k4") + 0.25 * of("full");
    expect(of("moba-b128-k4+full@0.75") / mixed).toBeCloseTo(1, 10);
  });

  it("has five sizes from 1.3M to 25.7M for one H200, each past the drop and at 20 tokens per parameter", () => {
    const ladder = preset("h200-16k");
    const runs = planRuns(ladder, {
      vocabulary: 8192,
      maxDocuments: 4,
      heldOutWindows: 575,
      device: "cuda:0",
    });
    const full = runs.filter(({ config }) => config.attention === "full" && config.seed === 1);
    // n (4 d^2 + 3 d ff) + (2 n + 1) d with d = 64 n and ff = 512, 704, 896, 1024, 1408, by hand.
    expect(full.map((run) => run.parameters)).toEqual([
      1_328_448, 3_213_568, 6_352_320, 10_621_824, 25_698_816,
    ]);
    for (const { config, parameters, tokens, evaluationTokens } of runs) {
      expect(tokens).toBeGreaterThan(300e6);
      expect(tokens / parameters).toBeGreaterThan(19.99);
      expect(config.sequencesPerStep).toBe(2);
      expect(config.sequencesPerPass).toBe(2);
      // A forward pass is a third of a training pass.
      expect(evaluationTokens / 3 / tokens).toBeLessThan(0.05);
    }
    expect(runs.filter(({ config }) => config.seed > 1).map(({ config }) => config.model)).toEqual([
      "d3",
      "d3",
      "d3",
      "d3",
      "d4",
      "d4",
      "d4",
      "d4",
    ]);
  });

  it("is a sweep with several learning rates: a model for each, all else alike", () => {
    const ladder = {
      ...preset("h200-16k"),
      sizes: [{ name: "d4", depth: 4 }],
      learningRateFactors: [0.25, 0.5],
    };
    const data = { vocabulary: 8192, maxDocuments: 4, device: "cpu" };
    const runs = planRuns(ladder, data);
    expect(runs.map(({ config }) => config.model)).toEqual(["d4", "d4", "d4-lr0.5", "d4-lr0.5"]);
    // A list that grows has the runs it had.
    const alone = planRuns({ ...ladder, learningRateFactors: [0.25] }, data);
    expect(runs.slice(0, 2)).toEqual(alone);
    const [low, , high] = runs.map(({ config }) => config);
    expect(high.optimizer.learningRate / low.optimizer.learningRate).toBeCloseTo(2, 2);
    expect({ ...high, model: "", optimizer: {} }).toEqual({ ...low, model: "", optimizer: {} });
  });

  it("has one window a pass on the CPU, and on a card what keeps it busy", () => {
    const of = (device: string) =>
      planRuns(preset("report-8k"), { vocabulary: 32768, maxDocuments: 1, device }).map(({ config }) => [
        config.sequencesPerStep,
        config.sequencesPerPass,
      ]);
    for (const [perStep, perPass] of of("cuda:0")) {
      expect(perStep % perPass).toBe(0);
      expect(perPass * 8192).toBeLessThanOrEqual(65_536);
    }
    expect(of("cpu").every(([, perPass]) => perPass === 1)).toBe(true);
  });

  it("names runs without characters that a file system or a shell minds", () => {
    expect(runName("d4", "moba-b128-k4/full:2+full@0.9", 1)).toBe("d4_moba-b128-k4_full_2_full_0.9_s1");
  });
});

describe("the step rule", () => {
  it("gives back the factor that a learning rate came of, whatever its rounding", () => {
    for (const learningRateFactor of [0.2, 0.35, 0.7, 0.99, 1, 1.4, 3]) {
      for (const operations of [1e12, 3.3e17, 7.7e17, 1e20]) {
        const { learningRate } = stepRule(operations, 8192, { learningRateFactor, batchFactor: 1 });
        expect(factorOf(learningRate, operations)).toBe(learningRateFactor);
      }
    }
    // Between 0.35 and 0.36 of 9.86e-4.
    expect(factorOf(3.5e-4, 1e20)).toBeUndefined();
  });

  it("is DeepSeek LLM's: 0.3118 C^-0.1250 and 0.2920 C^0.3271", () => {
    // C = 1e20: 0.3118 * 10^-2.5 = 9.86e-4; 0.292 * 10^6.542 = 1.017e6 tokens.
    const rule = stepRule(1e20, 8192, { learningRateFactor: 1, batchFactor: 1 });
    expect(rule.learningRate).toBe(9.86e-4);
    expect(rule.sequencesPerStep).toBe(124);
  });

  it("has at least one window a step", () => {
    expect(stepRule(1e9, 8192, { learningRateFactor: 1, batchFactor: 1 }).sequencesPerStep).toBe(1);
  });
});

describe("the time of a plan", () => {
  const ladder = {
    ...preset("h200-16k"),
    sizes: [{ name: "d1", depth: 1, tokens: 10_000_000 }],
  };
  const plan = (heldOutWindows: number) =>
    planRuns(ladder, { vocabulary: 256, maxDocuments: 2, heldOutWindows, device: "cuda:0" });

  it("is measured on the passes that will run, on a card", () => {
    const tokens: number[] = [];
    const seconds = estimateSeconds(plan(575), () => {
      const backend = createNullBackend();
      const documents = backend.documents.bind(backend);
      backend.documents = (count, most) => {
        tokens.push(count);
        return documents(count, most);
      };
      return backend;
    });
    // Two attentions, each once, with the two windows of a step.
    expect(tokens).toEqual([32_768, 32_768]);
    expect(seconds.every((time) => time > 0 && Number.isFinite(time))).toBe(true);
  });

  it("counts the evaluations", () => {
    const [run] = plan(575);
    const steps = evaluationSteps(run.steps, 12).length;
    expect(run.evaluationTokens).toBe(steps * 144 * 16_384);
    expect(plan(7)[0].evaluationTokens).toBe(steps * 7 * 16_384);
    expect(plan(0)[0].evaluationTokens).toBe(0);
  });
});

describe("sharing a machine", () => {
  it("runs as many at once as there are cores, and divides the threads", () => {
    expect(sharing(8, 2, new Array(8).fill(1), 100)).toEqual({ jobs: 2, threads: 1 });
    expect(sharing(2, 8, [1, 1], 100)).toEqual({ jobs: 2, threads: 4 });
  });
  it("runs fewer at once when memory is short", () => {
    expect(sharing(4, 4, [60, 30, 20, 10], 100).jobs).toBe(2);
    expect(sharing(4, 4, [600, 30, 20, 10], 100).jobs).toBe(1);
  });
  it("estimates the wall time of runs on several places, longest first", () => {
    expect(makespan([5, 3, 3, 2], 2)).toBe(7);
    expect(makespan([4, 4], 1)).toBe(8);
  });
});
