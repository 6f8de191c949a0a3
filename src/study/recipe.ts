/** The recipe of runs in words: what they share beside data, sizes and attention, with all values where they differ. */
import type { RunConfig } from "../train/types.ts";

export function recipeInWords(configs: readonly RunConfig[]): string {
  const each = (of: (config: RunConfig) => string | number) => [...new Set(configs.map(of))].join(" | ");
  const unless = (usual: string, value: string, words: string) => (value === usual ? [] : [words]);
  const percent = (share: number) => `${Number((100 * share).toPrecision(6))} %`;
  const keys = each(({ shape }) => shape.keyConvolution || "none");
  const grouped = each(({ shape }) => (shape.kvHeads === shape.heads ? "as heads" : shape.kvHeads));
  const recall = each(({ recall = 0 }) => percent(recall));
  return [
    `rotary base ${each(({ shape }) => shape.ropeTheta)}`,
    `head width ${each(({ shape }) => shape.headDim)}`,
    ...unless("as heads", grouped, `key/value heads ${grouped}`),
    ...unless("none", keys, `key convolution ${keys}`),
    `vocabulary ${each(({ shape }) => shape.vocabulary)}`,
    `output matrix ${each(({ shape }) => (shape.tiedOutput ? "tied" : "untied"))}`,
    `AdamW betas ${each(({ optimizer }) => `${optimizer.beta1}, ${optimizer.beta2}`)}`,
    `weight decay ${each(({ optimizer }) => optimizer.weightDecay)}`,
    `gradient norm ${each(({ optimizer }) => (optimizer.maxNorm > 0 ? `at most ${optimizer.maxNorm}` : "free"))}`,
    `schedule ${each(({ optimizer }) => {
      const { schedule, warmup, decay, finalShare } = optimizer;
      const last = schedule === "wsd" ? ` over the last ${percent(decay)}` : "";
      return `${schedule}, warm-up ${percent(warmup)}, down to ${percent(finalShare)}${last}`;
    })}`,
    ...unless("0 %", recall, `recall records in ${recall} of the sequences`),
    `${each(({ sequencesPerStep }) => sequencesPerStep)} x ${each(({ context }) => context)} tokens a step`,
  ].join("; ");
}
