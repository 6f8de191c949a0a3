/** The report of a study folder, made by hand: finished runs are fitted, others named, files as the design lists them. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { readCurves } from "../../src/fit/index.ts";
import { partsOf } from "../../src/fit/parts.ts";
import { ladderModel } from "../../src/model/config.ts";
import { studyReport, tableReport } from "../../src/report/index.ts";
import { exportCsv, exportStudy } from "../../src/study/export.ts";
import type {
  EvaluationRecord,
  MetricsRecord,
  RunConfig,
  RunStatus,
  TruncatedResult,
} from "../../src/train/types.ts";
import { mobalab } from "../cli/run-cli.ts";
import { OPTIMIZER } from "../train/tiny.ts";
import { parseSvg } from "./svg.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-study-"));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function writeStudy(runs: readonly string[] = []): void {
  mkdirSync(folder, { recursive: true });
  const host = { processor: "Test CPU", cores: 2, memory_gb: 8, node: "v20.20.0", device: "cpu" };
  const study = {
    format: 1,
    name: "by-hand",
    created: "2026-01-02T03:04:05.000Z",
    mobalab: "0.1.0",
    commit: null,
    host,
    preset: "quick",
    command: "mobalab study quick",
    context: 64,
    buckets: 2,
    tokenizer: "byte",
    source: "demo",
    rule: "a rule",
    runs,
  };
  writeFileSync(join(folder, "study.json"), JSON.stringify(study));
}

function writeRun(depth: number, attention: string, state: RunStatus["state"]): void {
  const run = join(folder, "runs", `d${depth}_${attention}_s1`);
  mkdirSync(run, { recursive: true });
  const config: RunConfig = {
    model: `d${depth}`,
    shape: ladderModel(depth, { headDim: 8, vocabulary: 256 }),
    attention,
    dataset: "../../data",
    context: 64,
    sequencesPerStep: 1,
    sequencesPerPass: 1,
    horizon: { steps: 10 },
    optimizer: { ...OPTIMIZER, learningRate: 1e-3 },
    buckets: 2,
    evaluations: 3,
    checkpointEvery: 0,
    recompute: false,
    seed: 1,
  };
  const status: RunStatus = {
    state,
    step: 10,
    steps: 10,
    attempt: 1,
    parameters: 1,
    windowsLeftOut: 0,
    epochs: 0.5,
    memory: 1,
    sparsity: attention === "full" ? 0 : 0.6,
    ...(state === "failed" ? { message: "the loss became NaN at step 7" } : {}),
  };
  const documents = (buckets: EvaluationRecord["buckets"]) =>
    Array.from({ length: 8 }, (_, i) => {
      return { document: `document ${i}`, buckets: buckets.map((b) => ({ ...b, predicted_tokens: 64 })) };
    });
  const evaluations: EvaluationRecord[] = [2, 5, 10].map((step) => {
    const pflops_days = 1e-12 * 3 ** depth * step;
    const lm_loss = 4 * (step / 10) ** -0.2 * 3 ** (-0.05 * depth) * (attention === "full" ? 1 : 1.01);
    const buckets = [
      { position_start: 0, position_end: 32, lm_loss: lm_loss * 1.02, predicted_tokens: 500 },
      { position_start: 32, position_end: 64, lm_loss: lm_loss * 0.98, predicted_tokens: 500 },
    ];
    return {
      step,
      tokens: 64 * step,
      attempt: 1,
      split: "held-out",
      lm_loss,
      predicted_tokens: 1000,
      buckets,
      documents: documents(buckets),
      pflops_days,
      pflops_days_attended: 2 * pflops_days,
      time_s: step,
      tokensPerSecond: 64,
      final: step === 10,
    };
  });
  const metrics: MetricsRecord[] = Array.from({ length: 10 }, (_, i) => ({
    step: i + 1,
    tokens: 64 * (i + 1),
    attempt: 1,
    loss: 5 - i / 5,
    gradNorm: 1,
    learningRate: 1e-3,
    tokensPerSecond: 64,
    time_s: i + 1,
    pflops_days: 1e-12 * 3 ** depth * (i + 1),
    pflops_days_attended: 2e-12 * 3 ** depth * (i + 1),
  }));
  const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
  writeFileSync(join(run, "config.json"), JSON.stringify(config));
  writeFileSync(join(run, "status.json"), JSON.stringify(status));
  writeFileSync(join(run, "eval.jsonl"), lines(evaluations));
  writeFileSync(join(run, "metrics.jsonl"), lines(metrics));
}

/** Eight documents alike, which lose a tenth (MoBA a twentieth) with each doubling. */
function writeTruncated(depth: number, attention: string): void {
  const contexts = [4, 8, 16, 32, 64];
  const share = attention === "full" ? 0.9 : 0.95;
  const part = { lm_loss: contexts.map((_, i) => 2 * share ** i), predicted_tokens: 8 };
  const documents = Array.from({ length: 8 }, (_, i) => ({ document: `document ${i}`, ...part }));
  const truncated: TruncatedResult = { windows: 16, contexts, ...part, predicted_tokens: 64, documents };
  const file = join(folder, "runs", `d${depth}_${attention}_s1`, "truncated.json");
  writeFileSync(file, JSON.stringify(truncated));
}

/** In place of a run's training losses those of 2000 steps, by a third lower after a sudden drop from step `drop` on. */
function writeDrop(name: string, drop: number, spike: (step: number) => number = () => 1): void {
  const steps = 2000;
  const rows = Array.from({ length: steps }, (_, i) => {
    const step = i + 1;
    const through = Math.min(1, Math.max(0, Math.log(step / drop) / 0.2));
    // Noise of 5 % each way, that of neighbours apart.
    const noise = 1 + 0.05 * Math.sin(12.9898 * step);
    const loss = 3 * (step / steps) ** -0.09 * (1 - through / 3) * spike(step) * noise;
    const compute = { pflops_days: 1e-12 * step, pflops_days_attended: 2e-12 * step };
    const speed = { gradNorm: 1, learningRate: 1e-3, tokensPerSecond: 64, time_s: step * 0.06 };
    return `${JSON.stringify({ step, tokens: 1000 * step, attempt: 1, loss, ...speed, ...compute })}\n`;
  });
  writeFileSync(join(folder, "runs", name, "metrics.jsonl"), rows.join(""));
}

describe("study report", () => {
  it("warns of an attention that leaves nothing of the context out", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k4"])
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    expect(studyReport(folder).fit.warnings[0]).toMatch(
      /^moba-b16-k4 attends to everything.* 4 blocks \(top-k\) of 16 tokens hold the whole context of 64;/,
    );
  });

  it("fits the finished runs, names the others and writes what the study folder promises", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    }
    writeRun(4, "full", "failed");
    const { fit, report, summary } = studyReport(folder);
    for (const file of ["report.html", "chart.svg", "chart.png", "curves.csv", "laws.json"])
      expect(existsSync(join(folder, file))).toBe(true);
    expect(JSON.parse(readFileSync(join(folder, "laws.json"), "utf8"))).toEqual(fit);
    // 7 runs x 3 evaluations x (all positions and two buckets).
    expect(readCurves(join(folder, "curves.csv"))).toHaveLength(7 * 3 * 3);
    const law = fit.laws.find((l) => l.attention === "full" && l.position_start === 32)!;
    expect(law.form === "power" && law.points.map((point) => point.model)).toEqual(["d1", "d2", "d3"]);
    const comparison = fit.comparisons.find((c) => c.position_start === 32)!;
    expect(comparison.ratio_law.ratio).toBeCloseTo(1.01, 6);
    expect(fit.warnings[0]).toBe("not finished, so left out of the laws: d4_full_s1");
    const html = readFileSync(report, "utf8");
    for (const text of [
      "by-hand",
      "Test CPU",
      "the loss became NaN at step 7",
      "60.0 %",
      "1.00e-3",
      "mobalab study quick",
      "State of the Union",
    ])
      expect(html).toContain(text);
    expect(summary).toContain("MoBA");
  });

  it("names attentions in the order of study.json, everywhere and again from its table", () => {
    // By name the second would be the first, and the first of the second has not finished.
    const attentions = ["full", "moba-b16-k2", "moba-b8-k3", "window-b8-k3"];
    const plan = [1, 2, 3, 4].flatMap((depth) => attentions.map((attention) => ({ depth, attention })));
    writeStudy(plan.map(({ depth, attention }) => `d${depth}_${attention}_s1`));
    for (const { depth, attention } of plan) {
      const first = depth === 1 && attention === "moba-b16-k2";
      writeRun(depth, attention, first ? "failed" : "finished");
      if (!first) writeTruncated(depth, attention);
    }
    const { fit } = studyReport(folder);
    const others = attentions.slice(1);
    const order = (labels: readonly string[]) => [...new Set(labels)];
    expect(order(fit.laws.map(({ attention }) => attention))).toEqual(attentions);
    expect(order(fit.comparisons.map(({ other }) => other))).toEqual(others);
    expect(order(fit.size_ratios!.map(({ other }) => other))).toEqual(others);
    for (const title of ["In short", "Context", "Training and cost"]) {
      const part = partsOf(fit).find((one) => one.title === title)!;
      const places = others.map((label) => part.sentences.join(" ").indexOf(label));
      expect(places, title).toEqual([...places].sort((a, b) => a - b));
      expect(places).not.toContain(-1);
    }

    const table = join(folder, "table");
    mkdirSync(table);
    const points = readCurves(join(folder, "curves.csv"));
    tableReport(points, table, { title: "table" });
    const legend = (file: string) => {
      const svg = parseSvg(readFileSync(file, "utf8"));
      return [...svg.querySelectorAll(".legend text")].map((text) => {
        const { previousElementSibling: sample } = text;
        const colour = sample.getAttribute("stroke") ?? sample.getAttribute("fill");
        return `${text.textContent.replace(/ projection$/, "")} ${colour}`;
      });
    };
    const [full, ...further] = [
      "Full attention #d0222b",
      "MoBA b16 k2 #1f4fd0",
      "MoBA b8 k3 #008763",
      "Sliding window #c77700",
    ];
    expect(legend(join(folder, "chart.svg"))).toEqual([...further, full]);
    for (const name of ["position", "training", "truncated", "buckets"]) {
      expect(legend(join(folder, `${name}.svg`)).slice(0, 4), name).toEqual([full, ...further]);
    }
    for (const name of ["chart", "position", "buckets"]) {
      expect(legend(join(table, `${name}.svg`)), name).toEqual(legend(join(folder, `${name}.svg`)));
    }
  });

  it("is the same, figure by figure, from what is kept of a study without its checkpoints", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) {
        writeRun(depth, attention, "finished");
        writeTruncated(depth, attention);
      }
    }
    mkdirSync(join(folder, "runs", "d1_full_s1", "checkpoint"));
    const kept = join(folder, "kept");
    exportStudy(folder, kept);
    expect(existsSync(join(kept, "runs", "d1_full_s1", "checkpoint"))).toBe(false);
    const [whole, again] = [studyReport(folder), studyReport(kept)];
    expect(again.fit).toEqual(whole.fit);
    const name = (path: string) => path.split("/").at(-1)!;
    expect(again.files.map(name)).toEqual(whole.files.map(name));
    expect(whole.files.map(name)).toContain("truncated.png");
    expect(again.body).toBe(whole.body.replaceAll(folder, kept));
    for (const file of whole.files.map(name).filter((file) => file.endsWith(".svg"))) {
      expect(readFileSync(join(kept, file), "utf8")).toBe(readFileSync(join(folder, file), "utf8"));
    }
    expect(readFileSync(join(kept, "curves.csv"))).toEqual(readFileSync(join(folder, "curves.csv")));
  });

  it("compares attentions at each size over documents, in words and in the table of sizes", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    }
    writeRun(2, "window-b16-k2", "finished");
    const { fit, body } = studyReport(folder);
    const words = fit.reading.filter((sentence) => /^(Single sizes|Losses at|In the first)/.test(sentence));
    // Each document of MoBA and of the window is 1 % above that of full attention.
    const [same, apart] = ["0.0 % (0.0 % to 0.0 %)", "+1.0 % (+1.0 % to +1.0 %)"];
    expect(words).toEqual([
      "Single sizes, so with 95 % intervals over 8 documents, not over seeds: losses at 32-64 against full attention, " +
        `at d2 MoBA ${apart}, window-b16-k2 ${apart}.`,
      "Losses at 32-64 against window-b16-k2, from which MoBA differs by routing alone, with 95 % intervals over 8 " +
        `documents: MoBA ${same} at d2.`,
      "In the first 32 positions, where MoBA and window-b16-k2 attend to everything as full attention does, losses differ " +
        "by training alone; against full attention, with 95 % intervals over 8 documents: " +
        `MoBA ${apart} at d1, ${apart} at d2, ${apart} at d3; window-b16-k2 ${apart} at d2.`,
    ]);
    // All of it is there in the first positions already.
    expect(fit.reading).toContain(
      "Relative to each one's own loss in the first 32 positions, losses at 32-64, with 95 % intervals over 8 documents: " +
        `at d2 against full attention MoBA ${same}, window-b16-k2 ${same}; against window-b16-k2 MoBA ${same}.`,
    );
    const from = body.indexOf("By size, seeds averaged");
    const table = body.slice(from, body.indexOf("</table>", from));
    expect(table).toContain("95 % intervals over documents, not over seeds");
    expect(body).toContain("<dt>Recipe</dt><dd>rotary base 10000; head width 8; ");
    expect(table).toContain('<th scope="col" class="number">causal pairs not attended</th>');
    expect(table).toMatch(/<td>Full attention<\/td><td class="number">0\.0 %<\/td>/);
    expect(table).toMatch(/<td>MoBA<\/td><td class="number">60\.0 %<\/td>/);
    expect(table).toContain('<th scope="col" class="number">ratio at 0-32</th>');
    expect(table).toContain('<th scope="col" class="number">ratio, each relative to its own at 0-32</th>');
    expect(table.split('<td class="number">1.0000 [1.0000, 1.0000]</td>')).toHaveLength(5);
    const rows = table.split("<tr>").slice(1);
    const cell = '<td class="number">1.0100 [1.0100, 1.0100]</td>';
    expect(rows.map((row) => row.split(cell).length - 1)).toEqual([0, 0, 2, 0, 2, 2, 0, 2]);
  });

  it("tells what the same tokens cost with less context, where runs measured it", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    }
    const without = studyReport(folder);
    expect(without.body).not.toContain("less context");
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeTruncated(depth, attention);
    }
    const { body } = studyReport(folder);
    expect(body.indexOf('<section id="truncated">')).toBeGreaterThan(body.indexOf('<section id="position">'));
    expect(body).toContain('<td class="number">1.6200</td>');
    expect(body).toContain('<td class="number">-10.00 %</td>');
    const { reading, laws } = JSON.parse(readFileSync(join(folder, "laws.json"), "utf8"));
    expect(laws).toEqual(without.fit.laws);
    // 2 x 0.9^4 is 1.3122, 2 x 0.95^4 is 1.6290.
    expect(reading).toEqual(
      expect.arrayContaining([
        expect.stringMatching(
          /full attention d3 on the same tokens falls with more context up to 64 at least/,
        ),
        expect.stringMatching(
          /From 4 to 64 of context the loss of MoBA d3 .* by -18\.55 %, that of full attention by -34\.39 %: MoBA gains less;.* \+15\.84 /,
        ),
      ]),
    );
    const damaged = join(folder, "runs", "d3_full_s1", "truncated.json");
    for (const [text, reason] of [
      ["[4,8", "JSON"],
      ['{"contexts":[8,4],"lm_loss":[2,1],"predicted_tokens":8,"documents":[]}', "ascending"],
      ['{"contexts":[4,8],"lm_loss":[2,null],"predicted_tokens":8,"documents":[]}', "a loss above 0"],
      [
        '{"contexts":[4,8],"lm_loss":[2,1],"predicted_tokens":8,"documents":[{"lm_loss":[2]}]}',
        "a loss above 0",
      ],
    ]) {
      writeFileSync(damaged, text);
      const { fit } = studyReport(folder);
      const warning = fit.warnings.find((words) => words.includes("d3_full_s1"));
      expect(warning).toMatch(
        /^left out of losses with less context: d3_full_s1, whose truncated\.json is not readable: /,
      );
      expect(warning).toContain(reason);
      // Its final losses stand.
      expect(fit.laws).toEqual(laws);
    }
    expect(exportStudy(folder, join(folder, "kept"))).toEqual([]);
    expect(studyReport(join(folder, "kept")).fit).toEqual(studyReport(folder).fit);
  });

  it("says where long training losses drop and rise, in the same words and figures from what is kept", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) {
        writeRun(depth, attention, "finished");
        const spike = (step: number) =>
          depth === 3 && attention === "full" && step > 1500 && step < 1800 ? 1.4 : 1;
        writeDrop(`d${depth}_${attention}_s1`, attention === "full" ? 600 : 800, spike);
      }
    }
    const kept = join(folder, "kept");
    exportStudy(folder, kept);
    const [whole, again] = [studyReport(folder), studyReport(kept)];
    expect(again.fit).toEqual(whole.fit);
    for (const file of ["training.svg", "chart.svg"]) {
      expect(readFileSync(join(kept, file), "utf8")).toBe(readFileSync(join(folder, file), "utf8"));
    }
    const words = whole.fit.reading.join("\n");
    const [, full, moba] =
      /Every finished run ends past a sudden drop .* at (\S+).* with full attention and (\S+)/
        .exec(words)!
        .map(Number);
    // Half of the fall in log loss is less than half of the way in log tokens.
    expect(full).toBeGreaterThan(0.6);
    expect(full).toBeLessThan(0.6 * Math.exp(0.2));
    expect(moba / full).toBeCloseTo(8 / 6, 1);
    expect(words).toContain("6 runs trained for 12.0 minutes in all (full attention 6.0, MoBA 6.0)");
    expect(
      readFileSync(whole.report, "utf8").match(/unstable: training loss \d+ % above its lowest/g),
    ).toHaveLength(1);
  });

  it("finds no best learning rate by a run that ends in its drop", () => {
    writeStudy();
    for (const depth of [1, 2, 3]) {
      writeRun(depth, "full", "finished");
      const name = `d${depth}_full_s1`;
      writeDrop(name, depth === 3 ? 1700 : 600);
      const path = join(folder, "runs", name, "config.json");
      const config: RunConfig = JSON.parse(readFileSync(path, "utf8"));
      const optimizer = { ...config.optimizer, learningRate: [2e-3, 3e-3, 4e-3][depth - 1] };
      const one = {
        ...config,
        model: `d1-lr${depth}`,
        shape: ladderModel(1, { headDim: 8, vocabulary: 256 }),
      };
      writeFileSync(path, JSON.stringify({ ...one, optimizer }));
    }
    expect(studyReport(folder).body).toContain(
      "The best learning rate of Full attention at d1 is not bracketed: it takes 3 learning rates, not 2; d3_full_s1 ends " +
        "in or just after a sudden drop of the training loss and is left out.",
    );
  });

  it("reports the other runs when the files of some are damaged, and names those with the reason", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3, 4]) writeRun(depth, attention, "finished");
    }
    const whole = studyReport(folder).fit;
    const copy = (name: string) => {
      const run = join(folder, "runs", name);
      cpSync(join(folder, "runs", "d4_full_s1"), run, { recursive: true });
      return (file: string, change: (text: string) => string) =>
        writeFileSync(join(run, file), change(readFileSync(join(run, file), "utf8")));
    };
    copy("bad-config")("config.json", (text) => text.slice(0, 50));
    copy("bad-status")("status.json", () => "[".repeat(200_000));
    copy("no-loss")("eval.jsonl", (text) => text.replace(/"lm_loss":[\d.]+,/, ""));
    copy("folder");
    rmSync(join(folder, "runs", "folder", "metrics.jsonl"));
    mkdirSync(join(folder, "runs", "folder", "metrics.jsonl"));
    copy("endless");
    rmSync(join(folder, "runs", "endless", "eval.jsonl"));
    symlinkSync("/dev/zero", join(folder, "runs", "endless", "eval.jsonl"));
    copy("pipe");
    rmSync(join(folder, "runs", "pipe", "status.json"));
    execFileSync("mkfifo", [join(folder, "runs", "pipe", "status.json")]);
    const { fit, report } = studyReport(folder);
    expect(fit.laws).toEqual(whole.laws);
    const html = readFileSync(report, "utf8");
    for (const [run, reason] of [
      ["bad-config", "config.json"],
      ["bad-status", "status.json is not readable as JSON"],
      ["no-loss", "eval.jsonl, line 1: the record of step 2 lacks its losses"],
      ["folder", "metrics.jsonl is no file"],
      ["endless", "eval.jsonl is no file"],
      ["pipe", "status.json is no file"],
    ]) {
      const warning = fit.warnings.find((text) => text.includes(` ${run} `));
      expect(warning).toContain(`left out of the laws: ${run} cannot be read: ${reason}`);
      expect(warning).not.toContain(folder);
      expect(html).toContain(reason);
    }
    const kept = join(folder, "kept");
    const names = ["bad-config", "bad-status", "endless", "folder", "no-loss", "pipe"];
    expect(exportStudy(folder, kept).map(({ name }) => name)).toEqual(names);
    expect(readdirSync(join(kept, "runs"))).not.toContain("pipe");
    expect(studyReport(kept).fit.laws).toEqual(whole.laws);
    const table = join(folder, "table.csv");
    // The table needs the config and the evaluations of a run, nothing else.
    expect(exportCsv(folder, table).map(({ name }) => name)).toEqual(
      names.filter((name) => name !== "bad-status"),
    );
    const others = readCurves(table).filter(({ run }) => !names.includes(run!));
    expect(others).toEqual(readCurves(join(kept, "curves.csv")));
    for (const run of readdirSync(join(folder, "runs")).filter(
      (name) => !names.includes(name) || name.startsWith("bad-s"),
    ))
      rmSync(join(folder, "runs", run), { recursive: true });
    expect(() => exportCsv(folder, `${table}2`)).toThrow(/^no run can be read: bad-config \(config\.json/);
  });

  it("names training logs that are not whole, and says nothing from them", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    }
    const whole = studyReport(folder).fit;
    expect(whole.reading.at(-1)).toMatch(/^6 runs trained for 1\.0 minutes in all/);
    const log = (run: string) => join(folder, "runs", run, "metrics.jsonl");
    const text = readFileSync(log("d1_full_s1"), "utf8");
    rmSync(log("d1_full_s1"));
    writeFileSync(log("d2_full_s1"), "");
    writeFileSync(log("d3_full_s1"), "garbage\n".repeat(9));
    writeFileSync(log("d1_moba-b16-k2_s1"), text.split("\n").slice(0, 4).join("\n"));
    writeFileSync(log("d2_moba-b16-k2_s1"), `${text.slice(0, -30)}\n${text}`);
    const { fit, body } = studyReport(folder);
    expect(fit.laws).toEqual(whole.laws);
    for (const reason of [
      "d1_full_s1, whose metrics.jsonl is missing",
      "d2_full_s1, d3_full_s1, whose metrics.jsonl has no record of a step",
      "d1_moba-b16-k2_s1, whose metrics.jsonl ends at step 4 of 10",
      "d2_moba-b16-k2_s1, whose metrics.jsonl, line 10: not a record",
    ]) {
      const warning = `left out of statements on training losses and times: ${reason}`;
      expect(fit.warnings.filter((words) => words.startsWith(warning))).toHaveLength(1);
      const [names, what] = reason.split(", whose ");
      for (const name of names.split(", ")) expect(body).toMatch(new RegExp(`${name}.*${what.slice(0, 40)}`));
    }
    expect(fit.reading.at(-1)).toMatch(/^1 run whose times are known trained for 0\.2 minutes in all/);
    const kept = join(folder, "kept");
    expect(exportStudy(folder, kept)).toEqual([]);
    expect(studyReport(kept).fit).toEqual(fit);
  });

  it("names finished runs without their last losses, and runs that study.json alone knows", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3, 4]) writeRun(depth, attention, "finished");
    }
    const of = (run: string, file: string) => join(folder, "runs", run, file);
    const study = JSON.parse(readFileSync(join(folder, "study.json"), "utf8"));
    const runs = ["d1_full_s1", "d4_full_s1", "d9_full_s1"];
    writeFileSync(join(folder, "study.json"), JSON.stringify({ ...study, runs }));
    rmSync(of("d4_full_s1", "config.json"));
    rmSync(of("d3_full_s1", "eval.jsonl"));
    const evaluations = readFileSync(of("d3_moba-b16-k2_s1", "eval.jsonl"), "utf8");
    writeFileSync(of("d3_moba-b16-k2_s1", "eval.jsonl"), evaluations.split("\n").slice(0, 2).join("\n"));
    const { fit, body } = studyReport(folder);
    const without = "has finished, but its eval.jsonl is missing or ends before the last evaluation";
    const missing = "cannot be read: study.json lists it, but its config.json is missing";
    expect(fit.warnings.filter((words) => words.startsWith("left out of the laws: "))).toEqual([
      `left out of the laws: d3_full_s1, d3_moba-b16-k2_s1, each of which ${without}`,
      `left out of the laws: d4_full_s1, d9_full_s1, each of which ${missing}`,
    ]);
    expect(body).toContain("d9_full_s1");
    expect(fit.reading.at(-1)).toMatch(/^5 runs whose times are known trained for 0\.8 minutes in all/);
  });

  it("warns of runs copied in under a size's name that have another shape", async () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3]) writeRun(depth, attention, "finished");
    }
    const copied = join(folder, "runs", "d2_full_s2");
    cpSync(join(folder, "runs", "d2_full_s1"), copied, { recursive: true });
    const config = readFileSync(join(copied, "config.json"), "utf8").replace('"seed":1', '"seed":2');
    const sizes = () => studyReport(folder).fit.warnings.filter((words) => words.includes("differ in"));
    writeFileSync(join(copied, "config.json"), config);
    expect(sizes()).toEqual([]);
    writeFileSync(join(copied, "config.json"), config.replace('"ropeTheta":10000', '"ropeTheta":500000'));
    const words = "runs of d2 differ in ropeTheta: 10000 and 500000; they are averaged as seeds";
    expect(sizes()).toEqual([words]);
    const { stdout } = await mobalab(["fit", join(folder, "curves.csv"), "--json"]);
    expect(JSON.parse(stdout).warnings).toContain(words);
  });

  it("reports a run with losses that are not finite, and fits no law through an earlier loss of it", () => {
    writeStudy();
    for (const attention of ["full", "moba-b16-k2"]) {
      for (const depth of [1, 2, 3, 4]) writeRun(depth, attention, "finished");
    }
    const change = (run: string, file: string, from: RegExp, to: string) => {
      const path = join(folder, "runs", run, file);
      writeFileSync(path, readFileSync(path, "utf8").replace(from, to));
    };
    change("d3_full_s1", "metrics.jsonl", /"loss":4\.8/, '"loss":null');
    change("d3_full_s1", "metrics.jsonl", /"loss":4\.6/, '"loss":"Infinity"');
    change("d4_full_s1", "eval.jsonl", /("step":10,.*?"lm_loss":)[\d.]+/, "$1null");
    const { fit, report } = studyReport(folder);
    const law = fit.laws.find((l) => l.attention === "full" && l.position_start === 32)!;
    expect(law.form === "power" && law.points.map((point) => point.model)).toEqual(["d1", "d2", "d3"]);
    expect(fit.warnings[0]).toBe(
      "left out of the laws: d4_full_s1 has a last held-out loss that is not a finite number",
    );
    expect(readFileSync(report, "utf8")).toContain("training loss NaN at step 2 and at 1 more");
    expect(JSON.parse(readFileSync(join(folder, "laws.json"), "utf8"))).toEqual(fit);
  });

  it("refuses a folder without a study and a study without a finished run", () => {
    expect(() => studyReport(join(folder, "none"))).toThrow(InputError);
    writeStudy();
    writeRun(1, "full", "running");
    expect(() => studyReport(folder)).toThrow(
      /1 runs of which none has finished.*; running: d\d_\S+ at step 10; the command of the study/,
    );
    expect(existsSync(join(folder, "report.html"))).toBe(false);
    writeFileSync(join(folder, "study.json"), '{"format":1,"runs":[]}');
    expect(() => studyReport(folder)).toThrow(/study\.json: name is missing/);
  });
});
