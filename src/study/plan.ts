/** A ladder expanded into runs, each with its parameters, tokens, compute, memory and learning rate. */
import { sparsity } from "../attention/pairs.ts";
import { parseSchedule } from "../attention/schedule.ts";
import { pflopsDays, trainingOperations } from "../compute/compute.ts";
import { ladderModel, nonEmbeddingParameters, totalParameters } from "../model/config.ts";
import { planMemory } from "../model/memory.ts";
import { evaluationSteps, horizonSteps } from "../train/schedule.ts";
import type { RunConfig } from "../train/types.ts";
import type { Ladder } from "./presets.ts";
import { modelAt, stepRule } from "./rule.ts";

export interface PlannedRun {
  /** Folder name under `runs/`. */
  readonly name: string;
  readonly config: RunConfig;
  /** Non-embedding and all. */
  readonly parameters: number;
  readonly totalParameters: number;
  readonly steps: number;
  readonly tokens: number;
  /** Of all evaluations together. */
  readonly evaluationTokens: number;
  readonly pflopsDays: number;
  readonly pflopsDaysAttended: number;
  /** Share of causal pairs not attended, over layers and phases, in a full window. */
  readonly sparsity: number;
  /** Bytes of tensors in its process. */
  readonly memory: number;
}

/** What the plan needs to know of the data: the vocabulary, the most windows packed in one sequence, held-out windows. */
export interface PlanData {
  readonly vocabulary: number;
  readonly maxDocuments: number;
  /** 0 when the data is not there yet. */
  readonly heldOutWindows?: number;
  /** `cpu` (all f32) or `cuda:<n>` (bf16 activations and weights): decides the memory and the passes. */
  readonly device: string;
  /** Cards that train a run together; 1 when absent. */
  readonly gpus?: number;
}

/** Steps between checkpoints, what a killed run loses at most: so many, or a tenth of a long run. */
const CHECKPOINT_STEPS = 100;
/** Tokens of a pass that keep a card busy; on the CPU a pass is one window. */
const PASS_TOKENS = 65_536;

export function runName(model: string, attention: string, seed: number): string {
  return `${model}_${attention.replace(/[^A-Za-z0-9.-]+/g, "_")}_s${seed}`;
}

/** The most sequences in one pass, a divisor of those that a card has in a step. */
function sequencesPerPass(sequencesPerStep: number, context: number, { device, gpus = 1 }: PlanData): number {
  if (device === "cpu") return 1;
  const own = sequencesPerStep % gpus === 0 ? sequencesPerStep / gpus : sequencesPerStep;
  let most = Math.max(1, Math.min(own, Math.floor(PASS_TOKENS / context)));
  while (own % most !== 0) most--;
  return most;
}

/**
 * Expands sizes x learning rates x attentions x seeds, smallest first. The first learning rate's models have the names
 * of the sizes, the others' carry their factor: a list that grows finds its runs again. Compute assumes full windows;
 * the runs count what they see.
 */
export function planRuns(ladder: Ladder, data: PlanData): PlannedRun[] {
  return ladder.learningRateFactors.flatMap((factor) => planFactor(ladder, factor, data));
}

function planFactor(ladder: Ladder, learningRateFactor: number, data: PlanData): PlannedRun[] {
  const runs: PlannedRun[] = [];
  const further = learningRateFactor !== ladder.learningRateFactors[0];
  for (const size of ladder.sizes) {
    const model = further ? modelAt(size.name, learningRateFactor) : size.name;
    const shape = ladderModel(size.depth, {
      headDim: ladder.headDim,
      vocabulary: data.vocabulary,
      kvHeads: ladder.kvHeads,
      tiedOutput: ladder.tiedOutput,
      ropeTheta: ladder.ropeTheta,
      keyConvolution: size.keyConvolution ?? ladder.keyConvolution,
    });
    const parameters = nonEmbeddingParameters(shape);
    const wanted = size.tokens ?? parameters * ladder.tokensPerParameter;
    const rule = stepRule(6 * parameters * wanted, ladder.context, { ...ladder, learningRateFactor });
    const steps = Math.round(wanted / (rule.sequencesPerStep * ladder.context));
    for (const attention of ladder.attentions) {
      for (const seed of size.seeds ?? ladder.seeds) {
        const config: RunConfig = {
          model,
          shape,
          attention,
          dataset: "../../data",
          context: ladder.context,
          sequencesPerStep: rule.sequencesPerStep,
          sequencesPerPass: sequencesPerPass(rule.sequencesPerStep, ladder.context, data),
          horizon: { tokens: Math.max(1, Math.round(wanted)) },
          optimizer: {
            learningRate: rule.learningRate,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weightDecay: 0.1,
            maxNorm: 1,
            schedule: "cosine",
            warmup: 0.05,
            decay: 0.2,
            finalShare: 0.05,
          },
          buckets: ladder.buckets,
          evaluations: ladder.evaluations,
          ...(ladder.evaluationWindows === undefined ? {} : { evaluationWindows: ladder.evaluationWindows }),
          ...(ladder.recall === undefined ? {} : { recall: ladder.recall }),
          checkpointEvery: Math.max(CHECKPOINT_STEPS, Math.ceil(steps / 10)),
          recompute: false,
          seed,
        };
        runs.push(planRun(runName(model, attention, seed), config, data));
      }
    }
  }
  return runs;
}

function planRun(name: string, config: RunConfig, data: PlanData): PlannedRun {
  const { maxDocuments, device, heldOutWindows = 0 } = data;
  const { shape, context } = config;
  const steps = horizonSteps(config);
  const tokens = steps * config.sequencesPerStep * context;
  const parameters = nonEmbeddingParameters(shape);
  const phases = parseSchedule(config.attention, shape.layers);
  const lengths = [context];
  let operations6ND = 0;
  let operationsAttended = 0;
  let unattended = 0;
  phases.forEach((phase, i) => {
    const share = (phases[i + 1]?.fromShare ?? 1) - phase.fromShare;
    const windows = (share * tokens) / context;
    const compute = { nonEmbeddingParameters: parameters, ...shape, attention: phase.layers };
    operations6ND += windows * trainingOperations(compute, lengths, "6ND");
    operationsAttended += windows * trainingOperations(compute, lengths, "attended");
    for (const layer of phase.layers) unattended += (share * sparsity(layer, lengths)) / shape.layers;
  });
  const memory = planMemory(
    shape,
    {
      tokens: config.sequencesPerPass * context,
      maxDocuments: config.sequencesPerPass * maxDocuments,
      training: true,
      recompute: config.recompute,
      attention: phases[0].layers,
    },
    (role) => (role === "index" ? "i32" : role === "float" || device === "cpu" ? "f32" : "bf16"),
  ).total;
  return {
    name,
    config,
    parameters,
    totalParameters: totalParameters(shape),
    steps,
    tokens,
    evaluationTokens:
      Math.min(heldOutWindows, config.evaluationWindows ?? heldOutWindows) *
      evaluationSteps(steps, config.evaluations).length *
      context,
    pflopsDays: pflopsDays(operations6ND),
    pflopsDaysAttended: pflopsDays(operationsAttended),
    sparsity: unattended,
    memory,
  };
}
