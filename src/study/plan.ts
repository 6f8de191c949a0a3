/** A ladder expanded into runs, each with its parameters, tokens, compute, memory and learning rate. */
import { sparsity } from "../attention/pairs.ts";
import { parseSchedule } from "../attention/schedule.ts";
import { pflopsDays, trainingOperations } from "../compute/compute.ts";
import { ladderModel, nonEmbeddingParameters, totalParameters } from "../model/config.ts";
import { planMemory } from "../model/memory.ts";
import { horizonSteps } from "../train/schedule.ts";
import type { RunConfig } from "../train/types.ts";
import type { Ladder } from "./presets.ts";
import { stepRule } from "./rule.ts";

export interface PlannedRun {
  /** Folder name under `runs/`. */
  readonly name: string;
  readonly config: RunConfig;
  /** Non-embedding and all. */
  readonly parameters: number;
  readonly totalParameters: number;
  readonly steps: number;
  readonly tokens: number;
  readonly pflopsDays: number;
  readonly pflopsDaysAttended: number;
  /** Share of causal pairs not attended, over layers and phases, in a full window. */
  readonly sparsity: number;
  /** Bytes of tensors in its process. */
  readonly memory: number;
}

/** What the plan needs to know of the data: the vocabulary, and the most windows packed in one sequence. */
export interface PlanData {
  readonly vocabulary: number;
  readonly maxDocuments: number;
  /** `cpu` (all f32) or `cuda:<n>` (bf16 activations and weights): decides the memory. */
  readonly device: string;
}

/** Steps between checkpoints: what a killed run loses at most. */
const CHECKPOINT_STEPS = 100;

export function runName(model: string, attention: string, seed: number): string {
  return `${model}_${attention.replace(/[^A-Za-z0-9.-]+/g, "_")}_s${seed}`;
}

/** Expands sizes x attentions x seeds, smallest first. Compute assumes full windows; the runs count what they see. */
export function planRuns(ladder: Ladder, data: PlanData): PlannedRun[] {
  const runs: PlannedRun[] = [];
  for (const size of ladder.sizes) {
    const shape = ladderModel(size.depth, {
      headDim: ladder.headDim,
      vocabulary: data.vocabulary,
      kvHeads: ladder.kvHeads,
      tiedOutput: ladder.tiedOutput,
      keyConvolution: ladder.keyConvolution,
    });
    const parameters = nonEmbeddingParameters(shape);
    const wanted = size.tokens ?? parameters * ladder.tokensPerParameter;
    const rule = stepRule(6 * parameters * wanted, ladder.context, ladder);
    for (const attention of ladder.attentions) {
      for (const seed of ladder.seeds) {
        const config: RunConfig = {
          model: size.name,
          shape,
          attention,
          dataset: "../../data",
          context: ladder.context,
          sequencesPerStep: rule.sequencesPerStep,
          sequencesPerPass: 1,
          horizon: { tokens: Math.round(wanted) },
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
          checkpointEvery: CHECKPOINT_STEPS,
          recompute: false,
          seed,
        };
        runs.push(planRun(runName(size.name, attention, seed), config, data));
      }
    }
  }
  return runs;
}

function planRun(name: string, config: RunConfig, { maxDocuments, device }: PlanData): PlannedRun {
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
    pflopsDays: pflopsDays(operations6ND),
    pflopsDaysAttended: pflopsDays(operationsAttended),
    sparsity: unattended,
    memory,
  };
}
