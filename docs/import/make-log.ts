/**
 * Writes the two files of the walk-through in docs/import.md: a chart as Weights & Biases exports it, of ten runs that
 * were never trained but follow known laws, and the table of the runs. `npx tsx docs/import/make-log.ts`
 */
import { writeFileSync } from "node:fs";

/** Loss at the end of a run: full attention 2.05 C^-0.055, the other 1.004 C^-0.003 times that; C in PFLOP/s-days. */
const lossAt = (pflopsDays: number, other: boolean) =>
  2.05 * pflopsDays ** -0.055 * (other ? 1.004 * pflopsDays ** -0.003 : 1);

const SIZES = [
  { model: "10m", parameters: 10e6, tokensPerStep: 2 ** 16 },
  { model: "25m", parameters: 25e6, tokensPerStep: 2 ** 17 },
  { model: "60m", parameters: 60e6, tokensPerStep: 2 ** 17 },
  { model: "150m", parameters: 150e6, tokensPerStep: 2 ** 18 },
  { model: "400m", parameters: 400e6, tokensPerStep: 2 ** 19 },
];
const EVALUATIONS = 40;

let state = 20;
/** A number from 0 to 1 (the minimal standard generator of Park and Miller). */
function random(): number {
  state = (state * 48271) % 2147483647;
  return state / 2147483647;
}
const noise = (deviation: number) =>
  deviation * Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());

const runs = SIZES.flatMap(({ model, parameters, tokensPerStep }) => {
  const steps = Math.round((20 * parameters) / tokensPerStep);
  // Both attentions of a size see the same data: most of their luck is shared.
  const shared = noise(0.003);
  return ["full", "moba"].map((attention) => {
    const end =
      lossAt((6 * parameters * steps * tokensPerStep) / 8.64e19, attention === "moba") *
      Math.exp(shared + noise(0.001));
    const losses = new Map<number, number>();
    for (let i = 1; i <= EVALUATIONS; i++) {
      const share = i / EVALUATIONS;
      const above = share ** -0.12 * (1 + 0.03 * (1 - share)) - 1;
      const step = Math.round(share * steps);
      losses.set(step, Math.min(10.8, end * (1 + above) * Math.exp(i === EVALUATIONS ? 0 : noise(0.001))));
    }
    return { name: `${attention}-${model}`, attention, model, parameters, tokensPerStep, losses };
  });
});

const quoted = (cells: readonly (string | number)[]) => cells.map((cell) => `"${cell}"`).join(",");
const twins = ["", "__MIN", "__MAX"];
const steps = [...new Set(runs.flatMap(({ losses }) => [...losses.keys()]))].sort((a, b) => a - b);
const chart = [
  quoted(["Step", ...runs.flatMap(({ name }) => twins.map((twin) => `${name} - val/loss${twin}`))]),
  ...steps.map((step) =>
    quoted([step, ...runs.flatMap(({ losses }) => twins.map(() => losses.get(step)?.toFixed(5) ?? ""))]),
  ),
];
const table = [
  "run,attention,model,parameters,tokens_per_step",
  ...runs.map((run) => [run.name, run.attention, run.model, run.parameters, run.tokensPerStep].join(",")),
];
writeFileSync(new URL("wandb-export.csv", import.meta.url), `${chart.join("\n")}\n`);
writeFileSync(new URL("runs.csv", import.meta.url), `${table.join("\n")}\n`);
