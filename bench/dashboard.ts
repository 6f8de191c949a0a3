/**
 * The dashboard's page under load, in Chromium: a study of 100 runs and 1,000,000 recorded steps. Milliseconds from
 * opening the address to the first paint and to each view drawn; from a line appended to a run's metrics to the curves
 * drawn with it; the page's heap before and after 10,000 such lines. Writes bench/results/dashboard_<cpu>_<date>.json.
 *
 *   npm run build && npm --prefix bench run dashboard [-- --runs 100 --steps 10000 --updates 10000]
 */
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type Browser, chromium, type Page } from "playwright-core";
import type { Overview } from "../src/server/api.ts";
import { makeLoadStudy, runNames, stepLine } from "./load-study.ts";
import { rounded, writeResult } from "./results.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "100" },
    steps: { type: "string", default: "10000" },
    updates: { type: "string", default: "10000" },
  },
});
const [runs, steps, updates] = [values.runs, values.steps, values.updates].map(Number);
const names = runNames(runs);
const path = process.env.MOBALAB_CHROMIUM ?? "/usr/bin/chromium";
if (!existsSync(path)) throw new Error(`no Chromium at ${path}: apt-get install chromium`);

const folder = mkdtempSync(join(tmpdir(), "mobalab-dashboard-"));
let server: ChildProcess | null = null;
let browser: Browser | null = null;
try {
  makeLoadStudy(folder, runs, steps);
  server = spawn(process.execPath, ["dist/cli/main.js", "serve", folder, "--port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const url = await firstLine(server);
  for (;;) {
    const { studies } = (await (await fetch(`${url}api/studies`)).json()) as Overview;
    if (studies.every((study) => !study.loading)) break;
    await sleep(50);
  }
  browser = await chromium.launch({ executablePath: path, args: ["--no-sandbox"] });
  const opened: Record<string, { first_paint_ms: number; drawn_ms: number }> = {};
  // What there is of a view when it is drawn; of curves nothing, but when their frame was drawn.
  const views: [view: string, selector: string, count: number][] = [
    ["runs", "tbody tr", runs],
    ["curves", "", 0],
    ["scaling", ".picture svg[role=img] path", runs],
    ["positions", ".picture svg[role=img] path", runs],
  ];
  for (const [view, selector, count] of views) {
    const page = await newPage(browser);
    await page.goto(`${url}#${view}`, { waitUntil: "commit" });
    await page.waitForFunction(
      ([inside, least]) =>
        inside === ""
          ? (window as unknown as Drawn).drawn > 0
          : document.querySelectorAll(inside).length >= least,
      [selector, count] as const,
      { polling: "raf" },
    );
    const times = await page.evaluate(async () => {
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
      const drawn_ms = performance.now();
      const [paint] = performance.getEntriesByName("first-contentful-paint");
      return { first_paint_ms: paint!.startTime, drawn_ms };
    });
    opened[view] = { first_paint_ms: rounded(times.first_paint_ms), drawn_ms: rounded(times.drawn_ms) };
    await page.close();
  }

  const page = await newPage(browser);
  await page.goto(`${url}#curves`);
  await page.waitForFunction(() => (window as unknown as Drawn).drawn > 0);
  await sleep(1000);
  const latencies: number[] = [];
  for (let i = 0; i < 100; i++) {
    const began = performance.timeOrigin + performance.now();
    appendFileSync(
      join(folder, "runs", names[i % runs], "metrics.jsonl"),
      stepLine(i % runs, steps + 1 + i, steps),
    );
    await page.waitForFunction((since) => (window as unknown as Drawn).drawn > since, began, {
      polling: "raf",
    });
    latencies.push((await page.evaluate(() => (window as unknown as Drawn).drawn)) - began);
    await sleep(30);
  }
  const client = await page.context().newCDPSession(page);
  const heap = async () => {
    await client.send("HeapProfiler.collectGarbage");
    return (await client.send("Runtime.getHeapUsage")).usedSize / 2 ** 20;
  };
  const before = await heap();
  for (let i = 0; i < updates; i++) {
    const run = i % runs;
    const line = stepLine(run, steps + 200 + Math.floor(i / runs), steps);
    appendFileSync(join(folder, "runs", names[run], "metrics.jsonl"), line);
    if (run === runs - 1) await sleep(100);
  }
  await sleep(1000);
  const after = await heap();
  const sorted = latencies.sort((a, b) => a - b);
  const figures = {
    runs,
    points: runs * steps,
    chromium: browser.version(),
    opened,
    update_to_drawn_ms: {
      updates: sorted.length,
      median: rounded(sorted[sorted.length >> 1]),
      p90: rounded(sorted[Math.floor(sorted.length * 0.9)]),
      largest: rounded(sorted.at(-1)!),
    },
    heap_mib: { updates, before: rounded(before), after: rounded(after), ratio: rounded(after / before) },
  };
  console.log(JSON.stringify(figures, null, 2));
  writeResult("dashboard", figures);
} finally {
  await browser?.close();
  server?.kill("SIGTERM");
  rmSync(folder, { recursive: true, force: true });
}

interface Drawn {
  /** When curves were last drawn, milliseconds since 1970; their frame is the last thing that is drawn. */
  drawn: number;
}

async function newPage(on: Browser): Promise<Page> {
  const page = await on.newPage({ viewport: { width: 1280, height: 900 } });
  await page.addInitScript(() => {
    const seen = window as unknown as Drawn;
    seen.drawn = 0;
    const { strokeRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.strokeRect = function (...at) {
      strokeRect.apply(this, at);
      seen.drawn = performance.timeOrigin + performance.now();
    };
  });
  return page;
}

async function firstLine(child: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: child.stdout! })) return line;
  throw new Error("the server ended without a line");
}
