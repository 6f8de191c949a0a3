/** `mobalab study`: plan a ladder, train its runs, fit the laws, write the report. */
import { freemem, totalmem } from "node:os";
import { join } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { InputError, RunError } from "../../errors.ts";
import { ROPE_THETA } from "../../model/config.ts";
import { CAPACITY } from "../../ops/cpu/index.ts";
import { formatReading } from "../../report/index.ts";
import { frozenStudyReport } from "../../server/freeze.ts";
import { estimateSeconds, makespan } from "../../study/calibrate.ts";
import { sharing } from "../../study/local.ts";
import type { PlannedRun } from "../../study/plan.ts";
import { type Ladder, type LadderSize, PRESETS, preset } from "../../study/presets.ts";
import { ruleInWords } from "../../study/rule.ts";
import { planStudy, prepareStudy, shareDone, trainStudy, unfinished } from "../../study/study.ts";
import { devicesAt, hardwareOf, openBackend, placesOf } from "../backend.ts";
import { duration, planTable, wrapLines } from "../format.ts";
import {
  deviceOption,
  gpusOption,
  jsonOption,
  listOf,
  MOST,
  numberFrom,
  positiveNumber,
  text,
  threadsOption,
  time,
  wholeNumber,
} from "../options.ts";
import { interruption, prepareProgress, StudyProgress } from "../progress.ts";

interface Options {
  out?: string;
  text?: string[];
  data?: string;
  only?: string[];
  depths?: number[];
  headDim?: number;
  attention?: string[];
  seeds?: number[];
  context?: number;
  buckets?: number;
  tokenizer?: string;
  tokensPerParameter?: number;
  learningRateFactor?: number[];
  batchFactor?: number;
  recall?: number;
  stopAfter?: number;
  ropeTheta?: number;
  keyConvolution?: 0 | 3 | 5;
  jobs?: number;
  threads: number;
  device: string;
  gpus: number;
  dryRun?: boolean;
  json?: boolean;
}

export function studyCommand(): Command {
  return new Command("study")
    .description("train a ladder of sizes with several attentions, fit the scaling laws and write the report")
    .argument("<preset>", `${PRESETS.map((p) => p.name).join(", ")}; the options below change it`)
    .option("--out <folder>", "study folder (default: studies/<preset>)", text)
    .option("--text <paths...>", "your own text: files or folders of .txt, .jsonl[.gz|.zst], .parquet, .bin")
    .option("--data <folder>", "a dataset made before, in place of --text (see `mobalab data`)", text)
    .option(
      "--depths <list>",
      "sizes: depth n has n layers and n heads, such as 2,3,4,6",
      listOf(wholeNumber(1, MOST.depth)),
    )
    .option("--head-dim <n>", "width per head; the model is depth x this wide", wholeNumber(2, MOST.headDim))
    .option("--attention <list>", "such as full,moba-b128-k4,moba-b128-k4+full@0.9", listOf(text))
    .option("--seeds <list>", "one run each, such as 1,2,3", listOf(wholeNumber(0, MOST.seed)))
    .option("--context <tokens>", "window length", wholeNumber(2, MOST.context))
    .option("--buckets <n>", "position buckets over the context", wholeNumber(1))
    .option("--tokenizer <t>", "byte, bpe-<vocabulary> or a tokenizer.json", text)
    .option("--tokens-per-parameter <x>", "length of the runs, of non-embedding parameters", positiveNumber)
    .option(
      "--learning-rate-factor <list>",
      "times the rule's learning rate; several sweep it, a model for each; the first keeps the plain names",
      listOf(positiveNumber),
    )
    .option("--batch-factor <x>", "times the rule's batch", positiveNumber)
    .option(
      "--rope-theta <x>",
      "base of the rotary embedding, such as 500000 for long contexts",
      numberFrom(ROPE_THETA.least, ROPE_THETA.most),
    )
    .option("--key-convolution <w>", "width of the key convolution: 0, 3 or 5", (value) => {
      if (!["0", "3", "5"].includes(value)) throw new InvalidArgumentError("Expected 0, 3 or 5.");
      return Number(value) as 0 | 3 | 5;
    })
    .option(
      "--recall <share>",
      "measure recall by distance at the end, with records mixed into this share of the training sequences",
      numberFrom(0, 1),
    )
    .option("--only <runs>", "these runs of the plan only, by name, in this order", listOf(text))
    .option(
      "--stop-after <time>",
      "interrupt what runs after this time, such as 9m; the same command continues",
      time,
    )
    .option("--jobs <n>", "runs at once (default: as cores and memory allow)", wholeNumber(1))
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(gpusOption())
    .option(
      "--dry-run",
      "print runs, parameters, tokens, compute, memory, time and what is finished; train nothing",
    )
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab study quick --text ~/books --out studies/books --dry-run")
    .action(run);
}

function ladderOf(name: string, options: Options): Ladder {
  const base = preset(name);
  const sizes = options.depths?.flatMap((depth): readonly LadderSize[] => {
    const known = base.sizes.filter((size) => size.depth === depth);
    return known.length > 0 ? known : [{ name: `d${depth}`, depth }];
  });
  return {
    ...base,
    sizes: (sizes ?? base.sizes).map((size) => ({
      ...size,
      tokens: options.tokensPerParameter ? undefined : size.tokens,
      seeds: options.seeds ? undefined : size.seeds,
      keyConvolution: options.keyConvolution === undefined ? size.keyConvolution : undefined,
    })),
    headDim: options.headDim ?? base.headDim,
    attentions: options.attention ?? base.attentions,
    seeds: options.seeds ?? base.seeds,
    context: options.context ?? base.context,
    buckets: options.buckets ?? base.buckets,
    tokenizer: options.tokenizer ?? base.tokenizer,
    tokensPerParameter: options.tokensPerParameter ?? base.tokensPerParameter,
    learningRateFactors: options.learningRateFactor ?? base.learningRateFactors,
    batchFactor: options.batchFactor ?? base.batchFactor,
    // A rule for the batch replaces one batch for all.
    sequencesPerStep: options.batchFactor === undefined ? base.sequencesPerStep : undefined,
    recall: options.recall ?? base.recall,
    ropeTheta: options.ropeTheta ?? base.ropeTheta,
    keyConvolution: options.keyConvolution ?? base.keyConvolution,
  };
}

async function run(name: string, options: Options): Promise<void> {
  if (options.data && options.text) {
    throw new InputError("--data is a dataset made before and --text makes one: expected one of them");
  }
  if (options.data && options.tokenizer) {
    throw new InputError("--data is a dataset made before, with its tokenizer: --tokenizer goes with --text");
  }
  const ladder = ladderOf(name, options);
  const folder = options.out ?? join("studies", ladder.name);
  const { gpus } = options;
  const devices = placesOf(options.device, gpus);
  const study = {
    ladder,
    folder,
    text: options.text ?? null,
    data: options.data ?? null,
    only: options.only ?? null,
    command: ["mobalab", ...process.argv.slice(2)].join(" "),
    device: devices[0],
    gpus,
    hardware: hardwareOf(devices.flatMap((device) => devicesAt(device, gpus))),
  };
  const room = devices[0] === "cpu" ? Math.min(CAPACITY, totalmem()) : Number.POSITIVE_INFINITY;
  const share = (plan: readonly PlannedRun[]) => {
    const fit =
      devices[0] === "cpu"
        ? sharing(
            plan.length,
            options.threads,
            plan.map((r) => r.memory),
            0.8 * freemem(),
          )
        : { jobs: Math.min(plan.length, devices.length) };
    const jobs = Math.max(1, Math.min(plan.length, options.jobs ?? fit.jobs));
    return { jobs, threads: Math.max(1, Math.floor(options.threads / jobs)) };
  };

  if (options.dryRun) {
    const plan = planStudy(study);
    const open = unfinished(folder, plan);
    const { jobs, threads } = share(open);
    const estimates = estimateSeconds(plan, () => openBackend(devices[0], threads));
    const runs = plan.map((run, i) => {
      const seconds = estimates[i] / gpus;
      const finished = !open.includes(run);
      const secondsLeft = finished ? 0 : seconds * (1 - shareDone(folder, run));
      return { ...run, seconds, finished, secondsLeft };
    });
    const seconds = makespan(
      runs.map(({ secondsLeft }) => secondsLeft),
      jobs,
      options.only !== undefined,
    );
    if (options.json) {
      process.stdout.write(`${JSON.stringify({ runs, jobs, threads, seconds }, null, 2)}\n`);
      return;
    }
    const left = runs.map(({ finished, secondsLeft }) => (finished ? null : secondsLeft));
    process.stdout.write(planTable(plan, ruleInWords(ladder), room, left));
    const many = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;
    const done = plan.length - open.length;
    const places = devices.map((device) => devicesAt(device, gpus).join(" + ")).join(", ");
    const words = [
      done > 0
        ? `${done} of ${many(plan.length, "run")} finished, ${open.length} to go`
        : many(plan.length, "run"),
      ...(open.length > 0
        ? [`, ${jobs} at once on ${places}, ${many(threads, "thread")} each: about ${duration(seconds)}`]
        : []),
    ];
    process.stdout.write(wrapLines(`${words.join("")}\n`));
    return;
  }

  const abort = interruption();
  const prepared = await prepareStudy(study, prepareProgress(process.stderr, abort.signal));
  const { plan } = prepared;
  const open = unfinished(folder, plan);
  const { jobs, threads } = share(open);
  if (!options.json) process.stdout.write(planTable(plan, ruleInWords(ladder), room));
  let outOfTime = false;
  const alarm = () => {
    outOfTime = true;
    abort.abort();
  };
  // Counted from the start of this process: a command's limit is.
  const timer = options.stopAfter && setTimeout(alarm, 1000 * options.stopAfter - performance.now());
  const progress = new StudyProgress(plan, open, jobs, options.json ? process.stderr : process.stdout);
  const failed = await trainStudy(folder, prepared, {
    entry: process.argv[1],
    jobs,
    threads,
    devices,
    gpus,
    onEvent: (event) => progress.on(event),
    signal: abort.signal,
  });
  if (timer) clearTimeout(timer);
  const left = unfinished(folder, plan);
  const broken = failed.filter(({ interrupted }) => !interrupted);
  if (outOfTime && left.length > 0 && broken.length === 0) {
    process.stderr.write(
      `stopped after ${duration(options.stopAfter!)} with ${plan.length - left.length} of ${plan.length} runs finished: the same command continues ${folder}\n`,
    );
    return;
  }
  if (abort.signal.aborted && broken.length === 0) {
    throw new RunError(`interrupted: the same command continues ${folder} where it stopped`);
  }
  if (left.length < plan.length) {
    const result = await frozenStudyReport(folder);
    if (options.json) process.stdout.write(`${JSON.stringify(result.fit, null, 2)}\n`);
    else {
      const words = formatReading(result.fit, undefined, { short: true });
      process.stdout.write(`\n${words}\n\nreport: ${result.report}\ndetails: mobalab report ${folder}\n`);
    }
  }
  if (broken.length > 0) {
    throw new RunError(
      `${broken.length} of ${plan.length} runs failed: ${broken.map(({ run }) => run).join(", ")}`,
    );
  }
}
