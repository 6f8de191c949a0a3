import { describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { type ImportOptions, importBytes, parseColumns } from "../../src/importers/index.ts";
import * as made from "./made.ts";

const read = (content: string | Uint8Array, options: ImportOptions = {}) =>
  importBytes(
    { name: "logs/x.log", bytes: typeof content === "string" ? made.bytesOf(content) : content },
    options,
  );

type Result = ReturnType<typeof read>;
const curve = (result: Result, split: string, run?: string) =>
  result.points
    .filter((point) => point.split === split && (run === undefined || point.run === run))
    .map((point) => [point.step, point.lm_loss]);
const skipped = (result: Result) =>
  Object.fromEntries(result.sources[0].skipped.map(({ reason, count }) => [reason, count]));
const format = (result: Result) => result.sources[0].format;

describe("console logs", () => {
  it("llm.c", () => {
    const result = read(made.LLM_C);
    expect(format(result)).toBe("llm.c main.log");
    expect(curve(result, "train")).toEqual([
      [0, 11.0091],
      [1, 10.9598],
      [2, 10.8556],
    ]);
    expect(curve(result, "eval")).toEqual([
      [0, 11.0092],
      [2, 10.8001],
    ]);
    expect(skipped(result)).toEqual({ "accuracy, not a loss": 1 });
    expect(result.runs[0].run).toBe("x");
  });

  it("nanoGPT: iter lines train, val loss held out, tokens from the log", () => {
    const result = read(made.NANO_GPT);
    expect(format(result)).toBe("nanoGPT console log");
    expect(curve(result, "train")).toEqual([
      [0, 10.9886],
      [10, 9.7301],
      [20, 8.9302],
    ]);
    expect(curve(result, "eval")).toEqual([
      [0, 10.9898],
      [20, 8.9412],
    ]);
    expect(result.points.at(-1)!.tokens).toBe(20 * 491_520);
    const silent = read(made.NANO_GPT.replace(/^iter.*\n/gm, ""));
    expect(curve(silent, "train")).toEqual([
      [0, 10.9899],
      [20, 8.9301],
    ]);
  });

  it("modded-nanogpt, its own source code before the log", () => {
    const result = read(made.MODDED);
    expect(format(result)).toBe("modded-nanogpt log");
    expect(curve(result, "train")).toEqual([
      [1, 10.8258],
      [2, 10.1202],
    ]);
    expect(curve(result, "eval")).toEqual([
      [0, 10.8258],
      [125, 4.5312],
    ]);
    expect(result.points.find((point) => point.step === 125)!.time_s).toBe(18.512);
  });

  it("torchtitan: colours, thousands, the first of two processes, validation", () => {
    const result = read(made.TORCHTITAN);
    expect(format(result)).toBe("torchtitan console log");
    expect(curve(result, "train")).toEqual([
      [1, 8.0277],
      [1000, 4.5],
    ]);
    expect(curve(result, "eval")).toEqual([[1000, 4.6]]);
    expect(result.points[1]).toMatchObject({ tokens_per_second: 301_092, tokens: 1000 * 64 * 2048 });
    expect(skipped(result)).toEqual({ "line of another process than the first (rank 0)": 1 });
  });

  it("Megatron: tokens from consumed samples, at evaluations those of the step", () => {
    const result = read(made.MEGATRON);
    expect(format(result)).toBe("Megatron console log");
    expect(curve(result, "train")).toEqual([
      [100, 7.123456],
      [200, 6.5],
    ]);
    expect(curve(result, "eval")).toEqual([[200, 6.412345]]);
    expect(result.points.map((point) => point.tokens)).toEqual([25_600, 51_200, 51_200].map((n) => n * 2048));
    expect(skipped(result)).toEqual({ "validation without an iteration (at the end of training)": 1 });
  });

  it("fairseq: bits become nats (its own ppl says the same), nll_loss goes before a smoothed loss", () => {
    const result = read(made.FAIRSEQ);
    expect(format(result)).toBe("fairseq console log");
    const losses = [...curve(result, "train"), ...curve(result, "eval")].map(([, loss]) => loss!);
    for (const [i, ppl] of [5792.62, 2048, 1448.15].entries())
      expect(Math.exp(losses[i])).toBeCloseTo(ppl, 1);
    expect(skipped(result)).toEqual({ "mean over an epoch (train_inner rows hold the curve)": 1 });
    const json = read(made.FAIRSEQ_JSON);
    expect(curve(json, "train")).toEqual([[100, Math.log(4096)]]);
    expect(curve(json, "eval")).toEqual([[100, Math.log(1024)]]);
  });
});

describe("Hugging Face's Trainer on a console", () => {
  it("train and eval apart, amid progress bars; its training losses numbered", () => {
    const result = read(made.TRAINER_CONSOLE, { facts: { tokens_per_step: 5000 } });
    expect(format(result)).toBe("Hugging Face Trainer console log");
    expect(curve(result, "train")).toEqual([
      [1, 4.5],
      [2, 4.25],
      [4, 4],
    ]);
    expect(curve(result, "eval")).toEqual([
      [2, 4.125],
      [4, 3.75],
    ]);
    expect(result.points.at(-1)!.tokens).toBe(20_000);
    expect(skipped(result)).toEqual({
      "loss is not a number": 1,
      "row sums the run up (train_loss is a mean over it)": 1,
    });
    const nan = made.TRAINER_CONSOLE.split(/\r\n|\n|\r/).findIndex((line) => line.includes("'loss': nan"));
    expect(result.sources[0].skipped.find(({ reason }) => /number/.test(reason))!.first).toBe(
      `line ${nan + 1}`,
    );
    expect(result.notes.join("\n")).toMatch(
      /no steps, so its training losses are numbered; --tokens-per-step is the tokens from one to the next, logging_steps times/,
    );
    expect(result.notes.join("\n")).toContain("124,439,808 parameters, the embedding among them");
  });

  it("numbers in quotes, as newer versions print them, tokens it counted, and a first line that is a dict", () => {
    const lines = [
      "{'loss': '4.5', 'grad_norm': '1.2', 'epoch': '0.1', 'num_input_tokens_seen': '1000'}",
      "{'eval_loss': '4.4', 'eval_runtime': '1', 'epoch': '0.1', 'num_input_tokens_seen': '1000'}",
      "{'loss': 'inf', 'epoch': '0.2', 'num_input_tokens_seen': '2000'}",
      "{'loss': '4.0e+00', 'epoch': '0.3', 'num_input_tokens_seen': '3000'}",
    ];
    const result = read(lines.join("\n"));
    expect(result.points.map(({ split, tokens, lm_loss }) => [split, tokens, lm_loss])).toEqual([
      ["train", 1000, 4.5],
      ["train", 3000, 4],
      ["eval", 1000, 4.4],
    ]);
    expect(skipped(result)).toEqual({ "loss is infinite": 1 });
    expect(result.notes.join()).toContain("tokens are those that it counts");
  });

  it("numbers the evaluations where those are more, and keeps steps that are there", () => {
    const lines = [1, 2, 3, 4, 5, 6].flatMap((n) => [
      ...(n % 3 === 0 ? [`{'loss': ${9 - n}, 'epoch': ${n}.0}`] : []),
      `{'eval_loss': ${9.5 - n}, 'epoch': ${n}.0}`,
    ]);
    const result = read(lines.join("\n"));
    expect(curve(result, "eval").map(([step]) => step)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(curve(result, "train")).toEqual([
      [3, 6],
      [6, 3],
    ]);
    const stated = lines.map((line, i) => line.replace("}", `, 'step': ${10 * i}}`));
    expect(curve(read(stated.join("\n")), "train")).toEqual([
      [20, 6],
      [60, 3],
    ]);
  });

  it("a resumed run goes back to where its epoch was", () => {
    const rows = [0.1, 0.2, 0.3, 0.4, 0.3, 0.4, 0.5].map(
      (epoch, i) => `{'loss': ${9 - i}, 'epoch': ${epoch}}\n`,
    );
    const result = read(rows.join(""));
    expect(curve(result, "train")).toEqual([
      [1, 9],
      [2, 8],
      [3, 5],
      [4, 4],
      [5, 3],
    ]);
    expect(result.runs[0]).toMatchObject({ rollbacks: 1 });
  });
});

describe("tables", () => {
  it("Hugging Face trainer_state.json, NaN as Python writes it", () => {
    const result = read(made.TRAINER_STATE);
    expect(format(result)).toBe("Hugging Face trainer_state.json");
    expect(curve(result, "train")).toEqual([[100, 4.5]]);
    expect(curve(result, "eval")).toEqual([
      [100, 4.4],
      [200, 4.1],
    ]);
    // The evaluation at step 100 takes the tokens of the training row there.
    expect(result.points.map((point) => point.tokens)).toEqual([819_200, 819_200, undefined]);
    expect(skipped(result)).toEqual({
      "row without a step": 1,
      "loss is not a number": 1,
      "row sums the run up (train_loss is a mean over it)": 1,
    });
  });

  it("Lightning CSVLogger: interleaved rows, losses of steps before means over epochs", () => {
    const result = read(made.LIGHTNING);
    expect(format(result)).toBe("Lightning CSVLogger");
    expect(curve(result, "train")).toEqual([
      [49, 9.44],
      [99, 9.03],
      [149, 8.73],
    ]);
    expect(curve(result, "eval")).toEqual([
      [99, 8.91],
      [199, 8.22],
    ]);
    expect(skipped(result)).toEqual({ "row without a loss": 1 });
    expect(result.notes[0]).toContain("train_loss_epoch");
  });

  it("Weights & Biases chart CSV: twins dropped, run names with dashes, blanks, NaN, a row without a step", () => {
    const result = read(made.WANDB_CSV);
    expect(format(result)).toBe("Weights & Biases chart CSV");
    expect(result.runs.map(({ run }) => run)).toEqual(["a - b", "c"]);
    expect(curve(result, "eval", "a - b")).toEqual([
      [0, 10.5],
      [10, 9.5],
    ]);
    expect(curve(result, "eval", "c")).toEqual([
      [0, 11.5],
      [20, 9],
      [30, 8],
    ]);
    expect(skipped(result)).toEqual({ "row without a step": 1, "loss is not a number": 1 });
  });

  it("two W&B runs of one name stay apart; the x axis may be tokens", () => {
    const result = read('"train/tokens","r - loss","r - loss"\n1000,5,6\n2000,4,5\n');
    expect(result.runs.map(({ run }) => run)).toEqual(["r", "r (2)"]);
    expect(result.points.map((point) => point.tokens)).toEqual([1000, 2000, 1000, 2000]);
    expect(() => read('"Wall Time","r - loss"\n1,5\n')).toThrow(/x axis "Wall Time".*--columns step=/);
  });

  it("plain CSV by --columns, and by names alone", () => {
    const options = { columns: parseColumns("loss=train,loss=val_loss,step=iter,tokens=toks") };
    const result = read(made.PLAIN_CSV, options);
    expect(format(result)).toBe("CSV");
    expect(curve(result, "train")).toEqual([
      [100, 5.1],
      [200, 4.2],
    ]);
    expect(curve(result, "eval")).toEqual([
      [200, 4.4],
      [300, 4.1],
    ]);
    expect(result.points[1].tokens).toBe(200_000);
    expect(curve(read(made.PLAIN_CSV), "eval")).toHaveLength(2);
  });

  it("JSONL and a JSON list, nested values by path", () => {
    const result = read(made.JSONL);
    expect(format(result)).toBe("JSONL");
    expect(curve(result, "train")).toEqual([
      [1, 5.5],
      [3, 5.4],
    ]);
    expect(curve(result, "eval")).toEqual([[2, 5.1]]);
    expect(result.points[0]).toMatchObject({ tokens: 1024, tokens_per_second: 900.5 });
    // Every row that states them has 1024 tokens a step.
    expect(result.points[2].tokens).toBe(2048);
    expect(skipped(result)).toEqual({ "loss is not a number": 1, "row without a step": 1 });
    const list = read('[{"step":1,"loss":2},\n {"step":2,"loss":1.5}]');
    expect(curve(list, "train")).toEqual([
      [1, 2],
      [2, 1.5],
    ]);
  });

  it("a curves table keeps its labels, buckets and compute", () => {
    const table =
      "attention,model,position_start,position_end,pflops_days,lm_loss,seed\n" +
      "full,d4,0,128,0.1,3.5,1\nfull,d4,128,256,0.1,3.25,1\nmoba,d4,0,128,0.1,3.6,1\n";
    const result = read(table);
    expect(format(result)).toBe("curves table");
    expect(
      result.points.map(({ attention, model, position_start, pflops_days, lm_loss, seed, split }) => [
        attention,
        model,
        position_start,
        pflops_days,
        lm_loss,
        seed,
        split,
      ]),
    ).toEqual([
      ["full", "d4", 0, 0.1, 3.5, 1, "eval"],
      ["full", "d4", 128, 0.1, 3.25, 1, "eval"],
      ["moba", "d4", 0, 0.1, 3.6, 1, "eval"],
    ]);
  });

  it("names of losses by position become buckets", () => {
    const result = read("step,val/loss_0-1024,val/loss_1024-2048\n5,3,2.5\n");
    expect(result.points.map((p) => [p.position_start, p.position_end, p.lm_loss])).toEqual([
      [0, 1024, 3],
      [1024, 2048, 2.5],
    ]);
  });
});

describe("record files", () => {
  const tensor = (type: number, ...fields: Buffer[]) =>
    made.field(8, Buffer.concat([made.field(1, type), made.field(2, Buffer.alloc(0)), ...fields]));

  it("TensorBoard: simple values and tensors of every real type, wall time, other summaries", () => {
    const float = Buffer.alloc(4);
    float.writeFloatLE(2.5);
    const packed = Buffer.alloc(8);
    packed.writeDoubleLE(1.75);
    const file = Buffer.concat(
      [
        made.VERSION_EVENT,
        made.event(0, "train/loss", made.fixed(2, 3.5, 4)),
        made.event(1, "train/loss", tensor(1, made.field(4, float))),
        made.event(2, "train/loss", tensor(2, made.field(6, packed))),
        made.event(3, "train/loss", tensor(19, made.field(13, 0x3e00))),
        made.event(4, "train/loss", tensor(14, made.field(4, Buffer.from([0xc0, 0x3f])))),
        made.event(5, "train/loss", tensor(3, made.field(7, 1))),
        made.event(5, "text", made.field(8, Buffer.concat([made.field(1, 7), made.field(8, "hello")]))),
        made.event(5, "held_out/loss", made.fixed(2, 3.25, 4)),
        made.event(2 ** 40, "train/loss", made.fixed(2, 0.5, 4)),
      ].map(made.frame),
    );
    const result = read(file);
    expect(format(result)).toBe("TensorBoard events");
    expect(curve(result, "train")).toEqual([
      [0, 3.5],
      [1, 2.5],
      [2, 1.75],
      [3, 1.5],
      [4, 1.5],
      [5, 1],
      [2 ** 40, 0.5],
    ]);
    expect(curve(result, "eval")).toEqual([[5, 3.25]]);
    expect(result.points[1].time_s).toBe(1);
    expect(skipped(result)).toEqual({ "summary that is no scalar (text, image, histogram)": 1 });
  });

  it("a negative step is skipped", () => {
    const events = [made.event(-1, "loss", made.fixed(2, 3, 4)), made.event(1, "loss", made.fixed(2, 2, 4))];
    const result = read(Buffer.concat(events.map(made.frame)));
    expect(skipped(result)).toEqual({ "step is not a whole number from 0 to 9e15": 1 });
  });

  it(".wandb: records over several blocks, both ways of keys, the run's name", () => {
    const filler = made.field(12, Buffer.alloc(70_000, 65));
    for (const nested of [false, true]) {
      const rows = Array.from({ length: 2000 }, (_, step) =>
        made.wandbHistory(
          { "train/loss": String(5 - step / 1000), _step: `${step}`, _runtime: `${step / 2}` },
          nested,
        ),
      );
      const evaluation = made.wandbHistory({ "val/loss": "4.5", _step: "2000", "train/loss": "NaN" }, nested);
      const result = read(
        made.wandbFile([
          made.wandbRun("ab12", "calm-hill-3"),
          ...rows.slice(0, 1000),
          filler,
          ...rows.slice(1000),
          evaluation,
        ]),
      );
      expect(format(result)).toBe("W&B offline run (.wandb)");
      expect(result.runs[0].run).toBe("calm-hill-3");
      expect(curve(result, "train")).toEqual(rows.map((_, step) => [step, 5 - step / 1000]));
      expect(curve(result, "eval")).toEqual([[2000, 4.5]]);
      expect(result.points[10].time_s).toBe(5);
      expect(skipped(result)).toEqual({ "loss is not a number": 1 });
    }
  });
});

describe("what is asked for", () => {
  it("compute from options: 6ND, and operations per token beside it", () => {
    const facts = { attention: "full", model: "m", seed: 3, parameters: 1e8, tokens_per_step: 1e5 };
    const result = read(made.LLM_C, { facts });
    const last = result.points.at(-1)!;
    expect(last).toMatchObject({
      attention: "full",
      model: "m",
      seed: 3,
      parameters: 1e8,
      tokens: 2e5,
      step: 2,
    });
    expect(last.pflops_days).toBeCloseTo((6 * 1e8 * 2e5) / 8.64e19, 20);
    expect(result.notes).toEqual([]);
    const attended = read(made.LLM_C, { facts: { ...facts, flops_per_token: 7e8 } }).points.at(-1)!;
    expect(attended.pflops_days_attended! / attended.pflops_days!).toBeCloseTo(7 / 6, 12);
    const alone = read(made.LLM_C, { facts: { tokens_per_step: 1e5, flops_per_token: 7e8 } });
    expect(alone.points.at(-1)!.pflops_days).toBeCloseTo((7e8 * 2e5) / 8.64e19, 20);
    expect(alone.notes.join()).toContain("stands in for 6ND");
  });

  it("names the facts that compute still needs", () => {
    const note = (facts: object) => read(made.LLM_C, { facts }).notes.join();
    expect(note({})).toContain("give --tokens-per-step and --parameters");
    expect(note({ parameters: 1e6 })).toContain("give --tokens-per-step");
    expect(note({ tokens_per_step: 10 })).toContain("give --parameters (or --flops-per-token)");
    expect(read(made.LLM_C).points[0].pflops_days).toBeNull();
  });

  it("no loss, no steps, wrong names: the sentence says what there is", () => {
    expect(() => read("step,accuracy\n1,0.5\n")).toThrow(
      /no column that reads as a loss.*\(it has accuracy\)/,
    );
    expect(() => read("epoch,loss\n1,0.5\n")).toThrow(/no column of steps or tokens.*it has epoch/);
    const columns = parseColumns("loss=los");
    expect(() => read("step,loss\n1,0.5\n", { columns })).toThrow(/no column "los".*it has step, loss/);
    expect(() => read(made.LLM_C, { columns })).toThrow(/llm.c main.log, which has no named columns/);
    expect(() => parseColumns("loss")).toThrow(InputError);
    expect(() => parseColumns("lr=x")).toThrow(/"lr"; it knows loss, step/);
    expect(parseColumns('loss="a, b",step=i').losses).toEqual(["a, b"]);
  });

  it("--split keeps one kind", () => {
    expect(curve(read(made.LLM_C, { split: "eval" }), "train")).toEqual([]);
    expect(() => read("step,loss\n1,2\n", { split: "eval" })).toThrow(/has no eval losses, only train/);
  });
});
