/** `mobalab bench attention`: where lines cross, what is said and drawn of them, and a run of the command. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { RunError } from "../../src/errors.ts";
import type { Backend } from "../../src/ops/contract.ts";
import { createNullBackend } from "../../src/ops/cuda/null.ts";
import { speedChart, speedReading, speedTable } from "../../src/report/attention-speed.ts";
import { chartSvg } from "../../src/report/index.ts";
import { textTable } from "../../src/report/table.ts";
import {
  type AttentionSpeed,
  compareTimes,
  measureAttention,
  type SpeedRow,
} from "../../src/study/attention-speed.ts";
import { mobalab } from "../cli/run-cli.ts";
import { overlap, parseSvg, pathPoints, pngPixels, type TextBox, textBoxes } from "./svg.ts";

const shape = { heads: 2, kv_heads: 1, head_dim: 64 };
const folder = mkdtempSync(join(tmpdir(), "mobalab-speed-"));
afterAll(() => rmSync(folder, { recursive: true }));

function row(attention: string, context: number, forward: number, training: number | null): SpeedRow {
  return {
    ...{ attention, context, route_ms: 0, forward_ms: forward, forward_memory: 2 ** 20 },
    ...{ backward_ms: training && training - forward, training_ms: training, training_memory: training },
  };
}

/** Full attention as T^2, MoBA as T: they meet at 4096 going forward; training of full attention ends at 8192. */
const made: AttentionSpeed = {
  shape,
  rows: [1024, 2048, 8192, 32_768].flatMap((T) => [
    row("full", T, (T / 4096) ** 2, T > 8192 ? null : 3 * (T / 4096) ** 2),
    row("moba-b128-k4", T, T / 4096, (0.1 * T) / 4096),
  ]),
  endings: [{ attention: "full", pass: "training", context: 32_768, because: "it would take too long" }],
};

/** Points of the curves' lines, a tenth of a pixel apart, that lie in a box. */
function pointsWithin(svg: ReturnType<typeof parseSvg>, box: TextBox): { x: number; y: number }[] {
  return [...svg.querySelectorAll(".curve path")].flatMap((path) => {
    const at = /translate\(([^,]+)/.exec(path.closest("[transform]")?.getAttribute("transform") ?? "");
    const moved = Number(at?.[1] ?? 0);
    const points = pathPoints(path.getAttribute("d"));
    return points.slice(1).flatMap((b, i) => {
      const a = points[i]!;
      const count = Math.ceil(10 * Math.hypot(b.x - a.x, b.y - a.y));
      return Array.from({ length: count + 1 }, (_, n) => ({
        x: moved + a.x + ((b.x - a.x) * n) / count,
        y: a.y + ((b.y - a.y) * n) / count,
      })).filter(({ x, y }) => x > box.left && x < box.right && y > box.top && y < box.bottom);
    });
  });
}

describe("where one line falls below another", () => {
  const line = (...times: number[]) => times.map((ms, i) => ({ context: 2 ** i, ms }));
  test("powers cross where their formulas do", () => {
    const { crossing, speedups } = compareTimes(line(1, 4, 16, 64), line(3, 6, 12, 24));
    expect(crossing?.context).toBeCloseTo(3, 10);
    expect(crossing?.ms).toBeCloseTo(9, 10);
    expect(speedups.at(-1)).toEqual({ context: 8, speedup: 64 / 24 });
  });
  test("the last crossing counts; none when always or at last not faster, or nothing is shared", () => {
    expect(compareTimes(line(1, 1, 1, 1), line(2, 0.5, 2, 0.5)).crossing?.context).toBeCloseTo(2 ** 2.5, 10);
    expect(compareTimes(line(2, 2), line(1, 1)).crossing).toBeNull();
    expect(compareTimes(line(2, 2), line(1, 3)).crossing).toBeNull();
    expect(compareTimes(line(1), [{ context: 7, ms: 1 }])).toEqual({ speedups: [], crossing: null });
  });
});

test("words: crossing, speed-up at the last common context, what ended early", () => {
  expect(speedReading(made)).toEqual([
    "Forward: MoBA is faster than full attention from about 4k tokens on; 8.0x its speed at 32k.",
    "Forward and backward: MoBA is faster than full attention at every context from 1k on; 60.0x its speed at 8k.",
    "Forward and backward: Full attention ends before 32k: it would take too long.",
  ]);
});

test("table: rates by attended pairs, within 80 columns", () => {
  const lines = textTable(speedTable(made)).split("\n");
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
  // 4 D H pairs = 4 * 64 * 2 * 1024 * 1025 / 2 operations in 1/16 ms.
  expect(lines[1]).toMatch(/^full +1k +0\.0625 +0\.188 +4\.30 /);
});

test("chart: both lines in both panels, straight as powers are, with the speed-up in words", () => {
  const svg = parseSvg(chartSvg(speedChart(made)));
  const paths = [...svg.querySelectorAll("g.curve path")].map((path) => pathPoints(path.getAttribute("d")));
  expect(paths.map((points) => points.length)).toEqual([4, 4, 3, 4]);
  const slope = ([a, , , b]: { x: number; y: number }[]) => (b!.y - a!.y) / (b!.x - a!.x);
  expect(slope(paths[0]!) / slope(paths[1]!)).toBeCloseTo(2, 1);
  expect(svg.textContent).toContain("MoBA: faster from 4k on, 8.0x at 32k");
  expect(svg.querySelectorAll("g.crossing circle, circle.crossing")).toHaveLength(1);
});

test("chart: speed-ups lie upon no line and no other word, also where lines go on or lie close", () => {
  const labels = ["moba-b512-k3", "moba-b128-k8", "window-512"];
  for (const apart of [1.2, 1.5, 2.5, 6]) {
    for (const bend of [0.7, 1, 1.3]) {
      const rows = [8, 16, 32, 64, 128].flatMap((k) => [
        row("full", 1024 * k, k ** 2, k > 32 ? null : 3 * k ** 2),
        ...labels.map((label, i) => row(label, 1024 * k, apart ** i * k ** bend, 2 * apart ** i * k ** bend)),
      ]);
      const svg = parseSvg(chartSvg(speedChart({ shape, rows, endings: [] })));
      const boxes = textBoxes(svg, "[aria-label=text]");
      const speedups = boxes.filter(({ text }) => /^[\d.]+x$/.test(text));
      expect(speedups).toHaveLength(6);
      for (const box of speedups) {
        expect(boxes.filter((other) => overlap(box, other))).toEqual([box]);
        expect(pointsWithin(svg, box), `${box.text}, ${apart}, ${bend}`).toEqual([]);
      }
    }
  }
});

describe("measuring", () => {
  const options = { shape, attentions: ["full", "moba-b128-k3"], contexts: [2048, 512], longest: 1e9 };

  test("contexts in order, memory beside inputs and outputs", () => {
    const { rows, endings } = measureAttention(() => createNullBackend(), options);
    expect(endings).toEqual([]);
    expect(rows.map(({ attention, context }) => `${attention} ${context}`)).toEqual(
      options.attentions.flatMap((label) => [`${label} 512`, `${label} 2048`]),
    );
    for (const { training_memory, forward_memory, forward_ms, training_ms } of rows) {
      expect(training_memory).toBeGreaterThanOrEqual(forward_memory);
      expect(training_ms).toBeGreaterThan(forward_ms);
    }
    // Log-sum-exps alone: 4 bytes for each head and token.
    expect(rows[1]!.forward_memory).toBeGreaterThanOrEqual(4 * 2 * 2048);
  });

  test("what would take too long is not called", () => {
    const { rows, endings } = measureAttention(() => createNullBackend(), { ...options, longest: 1e-12 });
    expect(rows.map(({ context }) => context)).toEqual([512, 512]);
    expect(endings.map(({ pass, context }) => `${pass} ${context}`)).toEqual(
      ["forward 2048", "training 2048"]
        .flatMap((ending) => [ending])
        .concat(["forward 2048", "training 2048"]),
    );
    expect(endings[0]!.because).toMatch(/a call would take about .* s, limit 1e-12 s/);
  });

  test("a pass ends where memory does; other failures are failures", () => {
    const failing = (context: number, message: string) => (): Backend => {
      const backend = createNullBackend();
      return Object.assign(Object.create(backend), {
        attentionBackward(...[state]: Parameters<Backend["attentionBackward"]>) {
          if (state.shape.tokens >= context) throw new RunError(message);
        },
      });
    };
    const { rows, endings } = measureAttention(failing(2048, "out of memory: 3 bytes are free"), options);
    expect(rows.map(({ training_ms }) => training_ms !== null)).toEqual([true, false, true, false]);
    expect(endings[0]).toEqual({
      ...{ attention: "full", pass: "training", context: 2048 },
      because: "out of memory: 3 bytes are free",
    });
    expect(() => measureAttention(failing(0, "the card has fallen off the bus"), options)).toThrow("fallen");
  });
});

test("the command writes its measurement, and draws it", async () => {
  const args = ["--device", "cpu", "--contexts", "64,128", "--heads", "2", "--head-dim", "16", "--json"];
  const out = join(folder, "speed");
  const { code, stdout, stderr } = await mobalab([
    ...["bench", "attention", ...args, "--attention", "full,moba-b16-k2", "--out", out],
  ]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const { rows, shape, host } = JSON.parse(stdout);
  expect(rows).toHaveLength(4);
  expect(shape).toEqual({ heads: 2, kv_heads: 2, head_dim: 16 });
  expect(host.device).toBe("cpu");
  expect(readFileSync(join(out, "attention.json"), "utf8")).toBe(stdout);
  expect(parseSvg(readFileSync(join(out, "attention.svg"), "utf8")).querySelector("title").textContent).toBe(
    "Time of an attention layer against context",
  );
  expect(pngPixels(readFileSync(join(out, "attention.png")))).toMatchObject({ width: 1720, height: 920 });
});
