/** Small logs, written after each format's own description, and writers of the two record formats. */
import { crc32 } from "node:zlib";
import { maskedCrc } from "../../src/importers/index.ts";

export const bytesOf = (text: string) => new Uint8Array(Buffer.from(text));

export const LLM_C = `s:0 tel:11.0092
s:0 trl:11.0091 lr:0.000001 norm:15.37
s:1 trl:10.9598 lr:0.000002 norm:15.24
s:2 trl:10.8556 lr:0.000003 norm:14.84
s:2 eval:0.2540
s:2 tel:10.8001
`;

export const NANO_GPT = `tokens per iteration will be: 491,520
number of parameters: 123.59M
step 0: train loss 10.9899, val loss 10.9898
iter 0: loss 10.9886, time 37236.79ms, mfu -100.00%
iter 10: loss 9.7301, time 520.11ms, mfu 41.02%
iter 20: loss 8.9302, time 519.90ms, mfu 41.02%
step 20: train loss 8.9301, val loss 8.9412
`;

export const MODDED = `import os, sys, uuid
with open(sys.argv[0]) as f: code = f.read()
print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f}")
====================================================================================================
Running PyTorch 2.6.0 compiled for CUDA 12.6
step:0/1770 val_loss:10.8258 train_time:0ms step_avg:nanms
step:1/1770 train_loss:10.8258 train_time:31012ms step_avg:31012.00ms
step:2/1770 train_loss:10.1202 train_time:31500ms step_avg:nanms
step:3/1770 train_time:32000ms step_avg:151.00ms
step:125/1770 val_loss:4.5312 train_time:18512ms step_avg:161.00ms
`;

export const TORCHTITAN = `[rank0]:[titan] 2025-01-02 10:00:00,000 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)
[rank0]:\u001b[32m[titan] 2025-01-02 10:00:01,000 - root - INFO - \u001b[31mstep:  1  \u001b[32mloss:  8.0277  \u001b[38;2;180;60;0mgrad_norm:  1.4604  \u001b[33mmemory:  1.21GiB(0.86%)  \u001b[34mtps: 5,756  \u001b[36mtflops: 0.41  \u001b[35mmfu: 0.04%\u001b[39m
[rank1]:[titan] 2025-01-02 10:00:01,000 - root - INFO - step:  1  loss:  8.0277  grad_norm:  1.4604  memory:  1.21GiB(0.86%)  tps: 5,755  tflops: 0.41  mfu: 0.04%
[rank0]:[titan] 2025-01-02 10:00:02,000 - root - INFO - step: 1,000  loss:  4.5000  grad_norm:  1.4604  memory:  1.21GiB(0.86%)  tps: 301,092  tflops: 21.55  mfu: 2.18%
[rank0]:[titan] 2025-01-02 10:00:03,000 - root - INFO - validate step: 1,000  loss:  4.6000  memory:  1.21GiB(0.86%)  tps: 600,000
`;

export const MEGATRON = `  global_batch_size ............................... 256
  seq_length ...................................... 2048
 [2024-05-01 10:00:00] iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 512.3 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 7.123456E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2024-05-01 10:01:00] iteration      200/  500000 | consumed samples:        51200 | elapsed time per iteration (ms): 511.0 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 6.500000E+00 | loss scale: 1.0 | grad norm: 1.100 | number of skipped iterations:   0 | number of nan iterations:   0 |
-----------------------------------------------------------------------------------------------------
 validation loss at iteration 200 | lm loss value: 6.412345E+00 | lm loss PPL: 6.093E+02 |
-----------------------------------------------------------------------------------------------------
 validation loss at the end of training for val data | lm loss value: 2.412345E+00 | lm loss PPL: 1.1E+01 |
`;

export const FAIRSEQ = `2021-03-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 354,000,000 (num. trained: 354,000,000)
2021-03-01 10:00:10 | INFO | train_inner | epoch 001:    100 / 9000 loss=12.5, ppl=5792.62, wps=20000, ups=3, wpb=6500, bsz=16, num_updates=100, lr=1e-05, gnorm=3.1, train_wall=33, gb_free=10, wall=40
2021-03-01 10:00:40 | INFO | train_inner | epoch 001:    200 / 9000 loss=11, ppl=2048, wps=20000, ups=3, wpb=6500, bsz=16, num_updates=200, lr=2e-05, gnorm=2.1, train_wall=33, gb_free=10, wall=70
2021-03-01 10:01:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 10.5 | ppl 1448.15 | wps 50000 | wpb 6000 | bsz 16 | num_updates 200 | best_loss 10.5
2021-03-01 10:01:01 | INFO | train | epoch 001 | loss 11.7 | ppl 3326 | wps 20000 | ups 3 | wpb 6500 | bsz 16 | num_updates 200 | lr 2e-05 | gnorm 2.5 | train_wall 66 | wall 75
`;

export const FAIRSEQ_JSON = `2021-03-01 10:00:10 | INFO | train_inner | {"epoch": 1, "update": 0.011, "loss": "13.1", "nll_loss": "12", "ppl": "4096", "wps": "20000", "num_updates": "100", "lr": "1e-05"}
2021-03-01 10:01:00 | INFO | valid | {"epoch": 1, "valid_loss": "11.2", "valid_nll_loss": "10", "valid_ppl": "1024", "valid_num_updates": "100"}
`;

const bar = (step: number, total: number) =>
  ` ${Math.floor((100 * step) / total)}%|█▌        | ${step}/${total} [00:12<01:48,  8.30it/s]`;

export const TRAINER_CONSOLE = `[INFO|trainer.py:2134] 2025-01-02 10:00:00,000 >> ***** Running training *****
[INFO|trainer.py:2135] 2025-01-02 10:00:00,000 >>   Num examples = 1,600
[INFO|trainer.py:2143] 2025-01-02 10:00:00,000 >>   Number of trainable parameters = 124,439,808
${bar(10, 400)}\r                    \r{'loss': 4.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.25}
\r${bar(20, 400)}{'loss': 4.25, 'grad_norm': nan, 'learning_rate': 4e-05, 'epoch': 0.5}
\r100%|██████████| 8/8 [00:01<00:00,  6.02it/s]\u001b[A{'eval_loss': 4.125, 'eval_runtime': 1.5, 'eval_samples_per_second': 30.1, 'epoch': 0.5}
${bar(30, 400)}\r{'loss': nan, 'grad_norm': inf, 'learning_rate': 3e-05, 'epoch': 0.75}
{'loss': 4.0, 'grad_norm': 1.0, 'learning_rate': 2e-05, 'epoch': 1.0}
{'eval_loss': 3.75, 'eval_runtime': 1.5, 'eval_samples_per_second': 30.1, 'epoch': 1.0}
{'train_runtime': 60.0, 'train_samples_per_second': 26.6, 'train_loss': 4.25, 'epoch': 1.0}
`;

export const TRAINER_STATE = JSON.stringify(
  {
    best_metric: null,
    epoch: 1,
    global_step: 200,
    log_history: [
      {
        epoch: 0.5,
        grad_norm: 1.2,
        learning_rate: 1e-4,
        loss: 4.5,
        num_input_tokens_seen: 819200,
        step: 100,
      },
      { epoch: 0.5, eval_loss: 4.4, eval_runtime: 10, eval_samples_per_second: 3, step: 100 },
      { epoch: 0.5, predict_loss: 4.3, predict_runtime: 10 },
      {
        epoch: 1,
        grad_norm: "NAN",
        learning_rate: 1e-4,
        loss: "NAN",
        num_input_tokens_seen: 1638400,
        step: 200,
      },
      { epoch: 1, eval_loss: 4.1, eval_runtime: 10, step: 200 },
      { epoch: 1, step: 200, total_flos: 3e16, train_loss: 4.3, train_runtime: 60 },
    ],
    total_flos: 3e16,
  },
  null,
  2,
).replaceAll('"NAN"', "NaN");

export const LIGHTNING = `epoch,step,train_loss_epoch,train_loss_step,val_loss
0,49,,9.44,
0,99,,9.03,
0,99,,,8.91
0,99,9.2,,
1,149,,8.73,
1,199,,,8.22
`;

export const WANDB_CSV = `"Step","a - b - val/loss","a - b - val/loss__MIN","a - b - val/loss__MAX","c - val/loss","c - val/loss__MIN","c - val/loss__MAX"
"0","10.5","10.4","10.6","11.5","11.5","11.5"
"10","9.5","9.4","9.6","","",""
"20","NaN","NaN","NaN","9","9","9"
"","1","1","1","1","1","1"
"30","","","","8","8","8"
`;

export const PLAIN_CSV = `iter,train,val_loss,toks
100,5.1,,100000
200,4.2,4.4,200000
300,nan,4.1,300000
`;

export const JSONL = `{"step": 1, "loss": 5.5, "tokens": 1024, "tokens_per_second": 900.5}
{"step": 2, "loss": NaN, "tokens": 2048}
{"step": 3, "loss": 5.4, "tokens": 3072}
{"step": 2, "eval": {"loss": 5.1}}
{"note": "resumed"}
`;

const varint = (value: number): number[] => {
  const bytes: number[] = [];
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return [...bytes, Number(rest)];
    bytes.push(Number(rest & 127n) | 128);
  }
};

/** A field of a message: text or bytes with their length, or an integer. */
export function field(number: number, value: string | Uint8Array | number): Buffer {
  if (typeof value === "number") return Buffer.from([...varint(number * 8), ...varint(value)]);
  const bytes = Buffer.from(value as string);
  return Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]);
}

export function fixed(number: number, value: number, size: 4 | 8): Buffer {
  const bytes = Buffer.alloc(size);
  if (size === 4) bytes.writeFloatLE(value);
  else bytes.writeDoubleLE(value);
  return Buffer.concat([Buffer.from(varint(number * 8 + (size === 4 ? 5 : 1))), bytes]);
}

/** A TFRecord frame. */
export function frame(data: Uint8Array): Buffer {
  const out = Buffer.alloc(data.length + 16);
  out.writeBigUInt64LE(BigInt(data.length), 0);
  out.writeUInt32LE(maskedCrc(out.subarray(0, 8)), 8);
  out.set(data, 12);
  out.writeUInt32LE(maskedCrc(data), data.length + 12);
  return out;
}

/** An Event with one value of a Summary. */
export function event(step: number, tag: string, value: Buffer, wallTime = 1000 + step): Buffer {
  return Buffer.concat([
    fixed(1, wallTime, 8),
    ...(step === 0 ? [] : [field(2, step)]),
    field(5, field(1, Buffer.concat([field(1, tag), value]))),
  ]);
}

export const VERSION_EVENT = Buffer.concat([fixed(1, 1000, 8), field(3, "brain.Event:2")]);

/** A `.wandb` file: header, then each record in LevelDB's log format. */
export function wandbFile(records: readonly Uint8Array[]): Buffer {
  const parts: Buffer[] = [Buffer.from([0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0])];
  let at = 7;
  const put = (bytes: Buffer) => {
    parts.push(bytes);
    at += bytes.length;
  };
  for (const record of records) {
    let rest = Buffer.from(record);
    let first = true;
    do {
      let left = 32768 - (at % 32768);
      if (left < 7) {
        put(Buffer.alloc(left));
        left = 32768;
      }
      const data = rest.subarray(0, left - 7);
      rest = rest.subarray(data.length);
      const last = rest.length === 0;
      const type = first ? (last ? 1 : 2) : last ? 4 : 3;
      const head = Buffer.alloc(7);
      head.writeUInt32LE(crc32(Buffer.concat([Buffer.from([type]), data])), 0);
      head.writeUInt16LE(data.length, 4);
      head[6] = type;
      put(Buffer.concat([head, data]));
      first = false;
    } while (rest.length > 0);
  }
  return Buffer.concat(parts);
}

/** A W&B Record of one history row. Keys go in `key`, or as parts in `nested_key` (newer clients). */
export function wandbHistory(row: Readonly<Record<string, string>>, nested = false): Buffer {
  const items = Object.entries(row).map(([key, json]) =>
    field(1, Buffer.concat([nested ? field(2, key) : field(1, key), field(16, json)])),
  );
  return Buffer.concat([field(1, 7), field(2, Buffer.concat(items))]);
}

/** A W&B Record of the run: id and display name. */
export function wandbRun(id: string, name: string): Buffer {
  return field(17, Buffer.concat([field(1, id), ...(name === "" ? [] : [field(8, name)])]));
}
