/** The lines that trainers print, one format each. */
import type { ConsoleFormat, LineSink } from "./console.ts";
import { numberOf } from "./numbers.ts";
import type { Split } from "./types.ts";

/** llm.c `main.log`: `s:N trl:` a training loss, `s:N tel:` an evaluation, `s:N eval:` accuracy on HellaSwag. */
const llmC: ConsoleFormat = {
  format: "llm.c main.log",
  data: /^s:\d+ (?:trl|tel|eval):/,
  read(line, sink) {
    const match = /^s:(\d+) (trl|tel|eval):(\S+)/.exec(line);
    if (!match) return false;
    const [, step, kind, loss] = match;
    if (kind === "eval") sink.skip("accuracy, not a loss");
    else sink.loss(kind === "trl" ? "train" : "eval", step, loss);
    return true;
  },
};

/** nanoGPT: `iter N: loss x, time y ms, mfu z%` and `step N: train loss x, val loss y` (estimates over batches). */
function nanoGpt(): ConsoleFormat {
  const estimates: { step: string; loss: string }[] = [];
  let iterations = 0;
  return {
    format: "nanoGPT console log",
    data: /^(?:iter \d+: loss \S|step \d+: train loss \S)/,
    read(line, sink) {
      const iteration = /^iter (\d+): loss ([^\s,]+)/.exec(line);
      if (iteration) {
        iterations++;
        sink.loss("train", iteration[1], iteration[2]);
        return true;
      }
      const step = /^step (\d+): train loss ([^\s,]+), val loss ([^\s,]+)/.exec(line);
      if (step) {
        estimates.push({ step: step[1], loss: step[2] });
        sink.loss("eval", step[1], step[3]);
        return true;
      }
      const tokens = /^tokens per iteration will be: ([\d,]+)/.exec(line);
      if (tokens) {
        setTokensPerStep(sink, tokens[1]);
        return true;
      }
      return noteParameters(line, sink);
    },
    finish(sink) {
      if (iterations > 0) {
        if (estimates.length > 0)
          sink.note("the train loss of evaluation lines was left out; the iter lines hold the curve");
      } else for (const { step, loss } of estimates) sink.loss("train", step, loss);
    },
  };
}

/** modded-nanogpt: `step:N/M train_loss:x` and `step:N/M val_loss:x train_time:yms step_avg:zms`. */
const moddedNanoGpt: ConsoleFormat = {
  format: "modded-nanogpt log",
  data: /^step:\d+\/\d+ (?:train_loss|val_loss|loss):/,
  read(line, sink) {
    const match = /^step:(\d+)\/\d+ (train_loss|val_loss|loss):(\S+)/.exec(line);
    if (!match) return false;
    const time = /\btrain_time:(\d[\d.]*)(ms|s)\b/.exec(line);
    const seconds = time ? Number(time[1]) / (time[2] === "ms" ? 1000 : 1) : undefined;
    sink.loss(match[2] === "val_loss" ? "eval" : "train", match[1], match[3], { time_s: seconds });
    return true;
  },
};

/** torchtitan: `step: N loss: x ... tps: y` (tokens per second of one device) and `validate step: N loss: x`. */
const torchtitan: ConsoleFormat = {
  format: "torchtitan console log",
  data: /\bstep:\s{0,20}[\d,]+\s{1,20}loss:\s{0,20}\S/,
  read(line, sink) {
    const match = /(validate )?\bstep:\s{0,20}([\d,]+)\s{1,20}loss:\s{0,20}(\S+)/.exec(line);
    if (match) {
      const speed = /\b(?:tps|wps):\s{0,20}([\d,.]+)/.exec(line);
      if (speed) sink.note("tokens per second are those of one device, as torchtitan prints them");
      sink.loss(match[1] ? "eval" : "train", match[2], match[3], { tokens_per_second: speed?.[1] });
      return true;
    }
    const batch = /global batch size (\d+),.{0,80}sequence length (\d+)/.exec(line);
    if (batch) {
      sink.facts.tokens_per_step = Number(batch[1]) * Number(batch[2]);
      return true;
    }
    return noteParameters(line, sink);
  },
};

/**
 * Megatron-LM: `iteration N/ M | consumed samples: ... | lm loss: x | ...` and
 * `validation loss at iteration N | lm loss value: x | ...`; tokens are consumed samples x `seq_length`.
 */
function megatron(): ConsoleFormat {
  let sequence: number | undefined;
  return {
    format: "Megatron console log",
    data: /\biteration\s{1,20}\d+\/\s{0,20}\d+ \||\bvalidation loss at /,
    read(line, sink) {
      const length = /^\s{0,20}(?:seq_length|seq-length) \.{2,120} (\d+)/.exec(line);
      if (length) {
        sequence = Number(length[1]);
        return true;
      }
      const validation = /\bvalidation loss at ([^|]*)\|(.*)/.exec(line);
      if (validation) {
        const step = /\biteration (\d+)/.exec(validation[1]);
        const loss = /\blm loss value: (\S+)/.exec(validation[2]);
        if (!loss) sink.skip("validation without an lm loss");
        else if (!step) sink.skip("validation without an iteration (at the end of training)");
        else if (/test set/.test(validation[1])) sink.skip("loss on the test set");
        else sink.loss("eval", step[1], loss[1]);
        return true;
      }
      const match = /\biteration\s{1,20}(\d+)\/\s{0,20}\d+ \|(.*)/.exec(line);
      if (!match) return false;
      const fields = new Map<string, string>();
      for (const part of match[2].split("|")) {
        const colon = part.indexOf(":");
        if (colon > 0) fields.set(part.slice(0, colon).trim(), part.slice(colon + 1).trim());
      }
      const loss = fields.get("lm loss");
      if (loss === undefined) {
        sink.skip("iteration without an lm loss");
        return true;
      }
      const samples = numberOf(fields.get("consumed samples"));
      const tokens =
        fields.get("consumed tokens") ??
        (samples === undefined || sequence === undefined ? undefined : samples * sequence);
      sink.loss("train", match[1], loss, { tokens });
      return true;
    },
  };
}

/**
 * fairseq, as its `simple` and `json` progress bars print: `train_inner | epoch 001: 100 / 1000 loss=x, ...,
 * num_updates=n` and `valid | ... | loss x | ... | num_updates n`. fairseq prints bits per token (2^loss = ppl); here
 * they become nats. `nll_loss` is taken where it stands beside a smoothed `loss`.
 */
const fairseq: ConsoleFormat = {
  format: "fairseq console log",
  data: /\|\s(?:INFO\s\|\s)?(?:train_inner|valid|train)\s\|.*num_updates\b|\|\sepoch \d+.*num_updates\b/,
  read(line, sink) {
    if (!fairseq.data.test(line)) return false;
    // Older versions write neither word: `epoch 1: 5 / 9 loss=` inside an epoch, `epoch 1 | loss` at its end.
    const older = /\bvalid on\b/.test(line) ? "valid" : /\bepoch \d+:\s/.test(line) ? "train_inner" : "train";
    const kind = /\|\s(train_inner|valid|train)\s\|/.exec(line)?.[1] ?? older;
    if (kind === "train") {
      sink.skip("mean over an epoch (train_inner rows hold the curve)");
      return true;
    }
    const prefix = kind === "valid" ? "(?:valid_)?" : "";
    const field = (name: string) => {
      const match = new RegExp(`(?:^|[\\s,|{"])${prefix}${name}"?(?:=|: ?| )"?([^\\s,|"}]+)`).exec(line);
      return match?.[1];
    };
    const loss = field("nll_loss") ?? field("loss");
    const step = field("num_updates");
    if (loss === undefined || step === undefined) {
      sink.skip("row without a loss");
      return true;
    }
    const bits = numberOf(loss) ?? Number.NaN;
    const ppl = numberOf(field("ppl"));
    if (
      ppl !== undefined &&
      Math.abs(Math.log2(ppl) - bits) > 0.02 * bits + 0.02 &&
      Math.abs(Math.log(ppl) - bits) < 0.02 * bits
    ) {
      sink.note("losses are in nats (e^loss = ppl) and were kept");
      sink.loss(kind === "valid" ? "eval" : "train", step, loss);
    } else {
      sink.note("losses are in bits per token (2^loss = ppl) and became nats");
      sink.loss(kind === "valid" ? "eval" : "train", step, String(bits * Math.LN2));
    }
    return true;
  },
};

/** A flat dict as Python prints it, with its values as texts. */
function pythonDict(text: string): Map<string, string> {
  const pairs = text.matchAll(/'([^']*)': ?(?:'([^']*)'|([^,'}]*))/g);
  return new Map(Array.from(pairs, ([, key, quoted, bare]) => [key, quoted ?? bare.trim()]));
}

/**
 * Hugging Face's Trainer: `{'loss': x, 'grad_norm': y, 'learning_rate': z, 'epoch': e}` and `{'eval_loss': x, ...}`, the
 * numbers bare or, in newer versions, quoted, also right behind a progress bar. It prints no step: the training losses
 * are numbered (the evaluations, where those are more), and an epoch that falls goes back to where it was.
 */
function huggingFace(): ConsoleFormat {
  interface Printed {
    readonly split: Split;
    readonly loss: string;
    readonly epoch: number;
    readonly step: string | undefined;
    readonly tokens: string | undefined;
    readonly place: string;
  }
  const printed: Printed[] = [];
  return {
    format: "Hugging Face Trainer console log",
    data: /\{(?=')[^{}]*'(?:eval_)?loss': ?'?(?:[\d.+-]|nan|inf)[^{}]*\}/,
    closed: true,
    read(line, sink) {
      const dicts = [...line.matchAll(/\{'[^{}]*\}/g)].map(([text]) => pythonDict(text));
      for (const dict of dicts) {
        const split = dict.has("eval_loss") ? "eval" : "train";
        const loss = dict.get("eval_loss") ?? dict.get("loss");
        if (loss === undefined) {
          if (dict.has("train_runtime")) sink.skip("row sums the run up (train_loss is a mean over it)");
          continue;
        }
        const prefix = split === "eval" ? "eval_" : "";
        // The Trainer prints 0 for tokens that it was not told to count.
        const tokens = [dict.get("num_input_tokens_seen"), dict.get(`${prefix}num_tokens`)].find(
          (count) => numberOf(count)! > 0,
        );
        const epoch = numberOf(dict.get("epoch")) ?? Number.NaN;
        printed.push({ split, loss, epoch, step: dict.get("step"), tokens, place: sink.place });
      }
      return dicts.length > 0 || noteParameters(line, sink);
    },
    finish(sink) {
      const evaluations = printed.filter(({ split }) => split === "eval").length;
      const lead: Split = 2 * evaluations > printed.length ? "eval" : "train";
      const numbered = printed.some(({ step }) => step === undefined);
      const epochs: number[] = [];
      for (const [i, row] of printed.entries()) {
        if (row.split === lead) {
          if (epochs.at(-1)! > row.epoch) while (epochs.at(-1)! >= row.epoch) epochs.pop();
          epochs.push(row.epoch);
        }
        // A training loss is printed before the evaluation of the same step.
        const next = printed[i + 1];
        const early =
          row.split !== lead && next?.split === "eval" && lead === "eval" && next.epoch === row.epoch;
        sink.place = row.place;
        const step = numbered ? String(epochs.length + (early ? 1 : 0)) : row.step!;
        sink.loss(row.split, step, row.loss, { tokens: row.tokens });
      }
      if (!numbered) return;
      const [losses, every] =
        lead === "train" ? ["training losses", "logging_steps"] : ["evaluations", "eval_steps"];
      const tokens = printed.every((row) => row.tokens !== undefined)
        ? "tokens are those that it counts"
        : `--tokens-per-step is the tokens from one to the next, ${every} times those of an optimizer step`;
      sink.note(`the log has no steps, so its ${losses} are numbered; ${tokens}`);
    },
  };
}

function setTokensPerStep(sink: LineSink, text: string): void {
  const tokens = numberOf(text);
  if (tokens !== undefined && Number.isFinite(tokens) && tokens > 0) sink.facts.tokens_per_step = tokens;
}

/** A log's own count of parameters includes the embedding, which N of 6ND does not. */
function noteParameters(line: string, sink: LineSink): boolean {
  const match =
    /\bsize: ([\d,]{1,30}) total parameters|^number of parameters: ([\d.]{1,20}[MBK]?)|\bNumber of trainable parameters = ([\d,]{1,30})/.exec(
      line,
    );
  if (!match) return false;
  sink.note(
    `the log counts ${match[1] ?? match[2] ?? match[3]} parameters, the embedding among them; --parameters is without embedding and output matrix`,
  );
  return true;
}

/** Each format fresh: some remember what their log said before. */
export function consoleFormats(): ConsoleFormat[] {
  return [llmC, nanoGpt(), moddedNanoGpt, torchtitan, megatron(), fairseq, huggingFace()];
}
