/** The dashboard in a browser, on a study that trains while it is looked at; and its frozen page from disk. */
import {
  copyFileSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, Download, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { formatNumber } from "../../src/report/labels.ts";
import { frozenStudyReport } from "../../src/server/freeze.ts";
import { type Serving, serve } from "../../src/server/serve.ts";
import { readMetrics } from "../../src/train/records.ts";
import { append, evaluationLine, makeRun, makeStudy, stepLine } from "../server/made.ts";
import { complaints, findChromium, openBrowser, seriousFindings } from "./browser.ts";
import { makeTestStudy, type TestStudy } from "./study.ts";

const chromium = findChromium();
const VIEWS = ["runs", "scaling", "scaling?panels=all", "positions", "curves", "findings", "moba"];

describe.skipIf(chromium === null)("the dashboard", () => {
  let study: TestStudy;
  let server: Serving;
  let browser: Browser;
  let page: Page;
  let said: string[];

  beforeAll(async () => {
    study = await makeTestStudy();
    study.train();
    server = await serve({ folders: [study.folder], port: 0 });
    browser = await openBrowser(chromium!);
    page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
    page.setDefaultTimeout(10_000);
    said = complaints(page);
    await page.goto(server.url);
  });
  afterAll(async () => {
    await browser?.close();
    await server?.close();
    study?.remove();
  });

  const show = (hash: string, on = page) =>
    on.evaluate((to) => {
      location.hash = to;
    }, hash);
  const list = (name: string) =>
    page.locator("label", { hasText: new RegExp(`^${name}`) }).getByRole("combobox");
  const readout = (on = page) => on.locator(".readout").first().textContent();
  const chart = (on = page) => on.locator(".picture").first();

  it("lists the runs with state, step, loss and the reason of a failure, and they move while they train", async () => {
    const row = (name: string) =>
      page.locator("tr", { has: page.getByRole("button", { name, exact: true }) });
    await expect.poll(() => row("d4_full_s1").textContent()).toContain("1600 / 1600");
    expect(await row("failed").textContent()).toContain("failed");
    expect(await page.locator(".reason.failed").textContent()).toContain("the loss is NaN at step 20");
    const step = async () =>
      Number.parseInt((await row("live").locator(".progress").textContent()) ?? "", 10);
    await expect.poll(step, { timeout: 20_000 }).toBeGreaterThan(0);
    const before = await step();
    await expect.poll(step, { timeout: 20_000 }).toBeGreaterThan(before);
    expect(await row("resumed").textContent()).toMatch(/100 \/ 400.*2/);
    expect(await page.locator(".reason.running").allTextContents()).toEqual([
      "no sign of life since 2026-01-02 03:04 UTC",
    ]);
    expect(await page.getByRole("status").textContent()).toBe("live");
  });

  it("sorts the runs by a column", async () => {
    await page.getByRole("button", { name: "step", exact: true }).click();
    await page.getByRole("button", { name: /^step/ }).click();
    expect(await page.locator("th[aria-sort]").getAttribute("aria-sort")).toBe("descending");
    // Read at one moment: one of them trains meanwhile.
    const steps = await page.locator("th[aria-sort]").evaluate((head) => {
      const { cellIndex } = head as HTMLTableCellElement;
      const rows = [...document.querySelectorAll<HTMLTableRowElement>("tbody tr")];
      // A reason has a row of one cell.
      const cells = rows.map((row) => row.cells[cellIndex]).filter((cell) => cell !== undefined);
      return cells.map((cell) => Number.parseInt(cell.textContent || "0", 10));
    });
    expect(new Set(steps).size).toBeGreaterThan(2);
    expect(steps).toEqual(steps.toSorted((a, b) => b - a));
  });

  it("shows hostile names as text", async () => {
    expect(await page.locator("tbody").textContent()).toContain('<img src=x onerror="window.hacked=1">');
    for (const view of VIEWS) {
      await show(view);
      expect(await page.locator("#app img, #app script").count()).toBe(0);
    }
    expect(await page.evaluate(() => "hacked" in window)).toBe(false);
  });

  it("draws loss against compute by both conventions, with projections, bands and the finding in words", async () => {
    await show("scaling");
    await expect.poll(() => page.locator(".sentences li").count(), { timeout: 30_000 }).toBeGreaterThan(3);
    const svg = page.locator(".picture svg[role=img]");
    await expect.poll(() => svg.locator("[stroke-dasharray]:not(line)").count()).toBe(2);
    expect(await svg.locator("[fill-opacity]").count()).toBeGreaterThan(0);
    expect(await svg.textContent()).toContain("PFLOP/s-days");
    const ticks = await svg.textContent();
    await page.getByText("as attended", { exact: true }).click();
    await expect.poll(() => svg.textContent()).toContain("operations as attended");
    expect(await svg.textContent()).not.toBe(ticks);
    await page.getByText("6ND", { exact: true }).click();
    for (const claim of ["cross inside the range", "never cross", "lower throughout", "are the same"]) {
      expect(await page.locator(".claims").textContent()).toContain(claim);
    }
    expect(await page.locator(".warnings").textContent()).toContain("not finished, so left out of the laws");
  });

  it("shows the answer in short, and the rest of the reading when unfolded", async () => {
    await page.getByRole("heading", { name: "In short", level: 3 }).waitFor();
    expect(await page.locator(".sentences").first().isVisible()).toBe(true);
    const laws = page.locator("details", { has: page.getByText("Laws", { exact: true }) });
    expect(await laws.locator(".sentences").isVisible()).toBe(false);
    await laws.locator("summary").click();
    expect(await laws.locator("li").first().textContent()).toMatch(/the loss of .* C\^/);
    expect(await laws.locator(".sentences").isVisible()).toBe(true);
    expect(await seriousFindings(page)).toEqual([]);
    await laws.locator("summary").click();
  });

  it("switches buckets, and shows them all as small multiples", async () => {
    await list("Positions").selectOption({ label: "0-32" });
    await expect.poll(() => page.locator(".picture svg[role=img]").textContent()).toContain("LM loss 0-32");
    await page.getByText("every bucket", { exact: true }).click();
    const svg = page.locator(".picture svg[role=img]");
    await expect.poll(() => svg.textContent()).toMatch(/0-32ratio .*32-64ratio /);
    await page.getByText("one bucket", { exact: true }).click();
  });

  it("tells exact values by arrow keys, and zooms by dragging", async () => {
    await show("scaling");
    await chart().focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("End");
    await expect.poll(() => readout()).toMatch(/d1_full_s1.*PFLOP\/s-days 1\.0000e-9/);
    await page.keyboard.press("Escape");
    await expect.poll(() => readout()).toContain("Point or use arrow keys");
    const box = (await chart().boundingBox())!;
    await page.mouse.move(box.x + 300, box.y + 150);
    await page.mouse.down();
    await page.mouse.move(box.x + 500, box.y + 300);
    await page.mouse.up();
    await expect.poll(() => new URL(page.url()).hash).toMatch(/x=.*y=/);
    await page.getByRole("button", { name: "Whole range" }).click();
    expect(new URL(page.url()).hash).toBe("#scaling");
  });

  it("draws loss, ratio and compute multiplier against position, loss against context, recall against distance, and blocks attended to", async () => {
    await show("positions");
    await expect.poll(() => page.locator(".picture svg[role=img]").count()).toBe(6);
    const titles = await page.locator(".picture svg[role=img] > title").allTextContents();
    expect(titles.join()).toMatch(
      /loss against position.*less context.*Ratio of losses.*multiplier.*Recall.*blocks are attended to/i,
    );
    // Of the runs whose files are as they should be.
    const lines = page
      .locator(".picture svg[role=img]", { hasText: "context kept, tokens" })
      .locator("circle");
    expect(await lines.count()).toBe(10);
  });

  it("keeps an attention's colour in every view, and hides it in every view", async () => {
    const swatches = await page
      .locator(".attentions .swatch")
      .evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor));
    expect(swatches).toEqual(["rgb(208, 34, 43)", "rgb(31, 79, 208)"]);
    const strokes = () =>
      page
        .locator(".picture svg[role=img]")
        .first()
        .evaluate((svg) => [
          ...new Set([...svg.querySelectorAll("[stroke]")].map((e) => e.getAttribute("stroke"))),
        ]);
    await expect.poll(strokes).toEqual(expect.arrayContaining(["#d0222b", "#1f4fd0"]));
    await page.getByRole("button", { name: "Full attention" }).click();
    await expect.poll(strokes).not.toContain("#d0222b");
    await show("scaling?hide=full");
    await expect.poll(strokes).toContain("#1f4fd0");
    expect(await strokes()).not.toContain("#d0222b");
    await page.getByRole("button", { name: "Full attention" }).click();
    await expect.poll(strokes).toContain("#d0222b");
  });

  it("marks resumes and losses that are not finite, and says so", async () => {
    await show("curves?run=resumed");
    await expect
      .poll(() => page.locator(".events").textContent())
      .toContain("resumed at step 41 (attempt 2)");
    expect(await page.locator(".events").textContent()).toContain("NaN at step 71");
    const steps = readMetricsOf(study, "d1_full_s1");
    expect(steps).toHaveLength(100);
  });

  it("has curves on log axes whose crosshair tells what was recorded", async () => {
    await show("curves?run=d2_full_s1&smooth=0");
    await expect.poll(() => readout()).toContain("Point or use arrow keys");
    const records = readMetricsOf(study, "d2_full_s1");
    await chart().focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Home");
    const places: number[] = [];
    for (const step of [1, 2, 4]) {
      await expect
        .poll(() => readout())
        .toContain(
          `step ${step}, tokens ${formatNumber(step * 64, 5)}, training loss ${formatNumber(records[step - 1].loss, 5)}`,
        );
      places.push((await page.locator(".ring").boundingBox())!.x);
      for (let i = 0; i < step; i++) await page.keyboard.press("ArrowRight");
    }
    expect(places[2] - places[1]).toBeCloseTo(places[1] - places[0], 0);
    await page.keyboard.press("End");
    await expect.poll(() => readout()).toContain(`step 400, tokens 25600`);
    await page.keyboard.press("+");
    await expect.poll(() => new URL(page.url()).hash).toContain("x=");
    await page.keyboard.press("0");
    await expect.poll(() => new URL(page.url()).hash).not.toContain("x=");
    const box = (await page.locator(".u-over").boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.8, box.y + box.height * 0.8, { steps: 3 });
    await page.mouse.up();
    await expect.poll(() => new URL(page.url()).hash).toMatch(/x=.*y=/);
    await page.locator(".u-over").dblclick();
    await expect.poll(() => new URL(page.url()).hash).not.toContain("x=");
  });

  it("reads finer steps where a long run is zoomed", async () => {
    await show("curves?run=live");
    await expect.poll(() => page.locator(".picture canvas").count()).toBe(1);
    const finer = page.waitForRequest((request) => request.url().includes("metrics?run=live"));
    await show("curves?run=live&x=1000~20000");
    expect(new URL((await finer).url()).searchParams.get("from")).not.toBeNull();
  });

  it("smooths by a window of tokens that is in the link, and draws other quantities", async () => {
    await show("curves");
    await list("Smoothing").selectOption("0.2");
    expect(new URL(page.url()).hash).toContain("smooth=0.2");
    for (const quantity of ["held-out loss", "gradient norm", "learning rate", "tokens/s"]) {
      await list("Show").selectOption({ label: quantity });
      await expect.poll(() => page.locator(".picture canvas").count()).toBe(1);
    }
    for (const along of ["steps", "time", "compute, 6ND", "compute, as attended"]) {
      await list("against").selectOption({ label: along });
      await expect.poll(() => page.locator(".picture canvas").count()).toBe(1);
    }
  });

  it("restores a view from its link", async () => {
    await show("scaling?axis=attended&bucket=0-32&hide=full&x=1e-10~1e-7&y=2~4");
    const picture = () => page.locator(".picture svg[role=img]").first().innerHTML();
    await expect.poll(picture).toContain("operations as attended");
    const there = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
    await there.goto(page.url());
    await expect
      .poll(() => there.locator(".picture svg[role=img]").first().innerHTML())
      .toBe(await picture());
    expect(await there.getByRole("tab", { selected: true }).textContent()).toBe("Scaling");
    await there.close();
  });

  it("can be used by keyboard alone", async () => {
    await page.goto(server.url);
    await page.locator("tbody").waitFor();
    await page.keyboard.press("Tab");
    expect(await focused(page)).toBe("Skip to the content");
    await page.keyboard.press("Enter");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("view");
    await page.getByRole("tab", { selected: true }).focus();
    await page.keyboard.press("ArrowRight");
    expect(await focused(page)).toBe("Scaling");
    expect(await page.getByRole("tab", { selected: true }).textContent()).toBe("Scaling");
    await page.keyboard.press("End");
    expect(await focused(page)).toBe("How MoBA routes");
    await page.keyboard.press("ArrowRight");
    expect(await focused(page)).toBe("Runs");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle);
    expect(outline).toBe("solid");
  });

  it("is dark where the system is, or where the reader wants it", async () => {
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await paper();
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(paper).not.toBe(light);
    await page.getByLabel("Theme").selectOption("light");
    await expect.poll(paper).toBe(light);
    await page.getByLabel("Theme").selectOption("system");
    await page.emulateMedia({ colorScheme: "light" });
  });

  it.each(["light", "dark"] as const)("has no serious finding of axe (%s)", async (colorScheme) => {
    await page.emulateMedia({ colorScheme });
    for (const view of VIEWS) {
      await show(view);
      await page.waitForTimeout(150);
      expect(await seriousFindings(page), view).toEqual([]);
    }
    await page.emulateMedia({ colorScheme: "light" });
  });

  it("fits 360 pixels", async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    for (const view of VIEWS) {
      await show(view);
      await page.waitForTimeout(100);
      expect(await page.evaluate(() => document.documentElement.scrollWidth), view).toBeLessThanOrEqual(360);
      const { x, width } = (await page.getByRole("tab", { selected: true }).boundingBox())!;
      expect(x, view).toBeGreaterThanOrEqual(0);
      expect(x + width, view).toBeLessThanOrEqual(360);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  it("saves charts as SVG, PNG and CSV", async () => {
    await show("scaling");
    await checkFiles(page);
    await show("curves");
    await page.locator(".picture canvas").waitFor();
    const [csv] = await saved(page, "CSV");
    expect(csv).toMatch(/^series,kind,positions,tokens,training loss,low,high\n/);
  });

  it("saves charts also where it is served to others, without a secure context", async () => {
    const address = Object.values(networkInterfaces())
      .flat()
      .find((one) => one?.family === "IPv4" && !one.internal)?.address;
    if (address === undefined) return;
    const open = await serve({ folders: [study.folder], host: address, port: 0 });
    const there = await browser.newPage();
    await there.goto(`${open.url}#scaling`);
    await show("scaling", there);
    expect(await there.evaluate(() => isSecureContext)).toBe(false);
    await checkFiles(there);
    await there.close();
    await open.close();
  });

  it("has had nothing to complain about", () => {
    expect(said).toEqual([]);
  });

  it("goes on after the server was away", async () => {
    await page.goto(server.url);
    await expect.poll(() => page.getByRole("status").textContent()).toBe("live");
    const port = Number(new URL(server.url).port);
    await server.close();
    await expect.poll(() => page.getByRole("status").textContent()).toContain("connection lost");
    server = await serve({ folders: [study.folder], port });
    await expect.poll(() => page.getByRole("status").textContent(), { timeout: 20_000 }).toBe("live");
  });

  it("lets go of its connection while it is hidden: a browser has six for a server", async () => {
    const context = await browser.newContext();
    const pages: Page[] = [];
    const look = (at: Page, state: string) =>
      at.evaluate((to) => {
        Object.defineProperty(document, "visibilityState", { configurable: true, get: () => to });
        document.dispatchEvent(new Event("visibilitychange"));
      }, state);
    for (let n = 0; n < 8; n++) {
      const next = await context.newPage();
      await next.goto(server.url, { timeout: 15_000 });
      await expect.poll(() => next.getByRole("status").textContent()).toBe("live");
      await look(next, "hidden");
      pages.push(next);
    }
    // Looked at again, it goes on from where it was.
    const [first] = pages;
    const step = async () =>
      Number.parseInt(
        (await first
          .locator("tr", { has: first.getByRole("button", { name: "live", exact: true }) })
          .locator(".progress")
          .textContent()) ?? "",
        10,
      );
    const before = await step();
    await look(first, "visible");
    await expect.poll(step).toBeGreaterThan(before);
    await context.close();
  }, 60_000);

  it("is live in more windows in sight than a browser has connections", async () => {
    const context = await browser.newContext();
    const pages: Page[] = [];
    for (let n = 0; n < 9; n++) {
      const next = await context.newPage();
      await next.goto(server.url, { timeout: 15_000 });
      await expect.poll(() => next.getByRole("status").textContent()).toBe("live");
      pages.push(next);
    }
    // Each hears of every step once, one that was opened late and one that is left alone too.
    const last = async (one: Page) =>
      Number.parseInt(
        (await one
          .locator("tr", { has: one.getByRole("button", { name: "live", exact: true }) })
          .locator(".progress")
          .textContent()) ?? "",
        10,
      );
    const before = await Promise.all(pages.map(last));
    for (const [i, one] of pages.entries())
      await expect.poll(() => last(one)).toBeGreaterThan(Math.max(...before) + i);
    for (const one of pages.slice(1)) await one.close();
    const left = await last(pages[0]);
    await expect.poll(() => last(pages[0])).toBeGreaterThan(left + 10);
    // The server goes away and comes back.
    const port = Number(new URL(server.url).port);
    const second = await context.newPage();
    await second.goto(server.url);
    await server.close();
    for (const one of [pages[0], second])
      await expect.poll(() => one.getByRole("status").textContent()).toContain("connection lost");
    server = await serve({ folders: [study.folder], port });
    for (const one of [pages[0], second]) {
      await expect.poll(() => one.getByRole("status").textContent(), { timeout: 20_000 }).toBe("live");
      const then = await last(one);
      await expect.poll(() => last(one)).toBeGreaterThan(then);
    }
    await context.close();
  }, 90_000);

  it("asks no more often, in any number of windows, while the server has no stream left for it", async () => {
    const full = await serve({ folders: [study.folder], port: 0 });
    const context = await browser.newContext();
    let reads = 0;
    context.on("request", (request) => {
      if (request.url().endsWith("/api/studies")) reads++;
    });
    try {
      const others = Array.from({ length: 32 }, () => {
        const other = connect(Number(new URL(full.url).port), "127.0.0.1");
        other.on("error", () => {});
        other.write("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        return other.resume();
      });
      await Promise.all(others.map((other) => new Promise((resolve) => other.once("data", resolve))));
      const pages = await Promise.all(Array.from({ length: 7 }, () => context.newPage()));
      for (const one of pages) await one.goto(full.url);
      await pages[0].waitForTimeout(4000);
      reads = 0;
      await pages[0].waitForTimeout(6000);
      // Each of them every two seconds.
      expect(reads).toBeLessThanOrEqual(4 * pages.length);
      for (const other of others) other.destroy();
      for (const one of pages) await expect.poll(() => one.getByRole("status").textContent()).toBe("live");
    } finally {
      await context.close();
      await full.close();
    }
  }, 60_000);

  it("keeps its heap within 10 % over 10,000 updates", async () => {
    const own = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    // Events are made here, so that ten thousand take seconds.
    await own.addInitScript(() => {
      class Events extends EventTarget {
        onopen?: () => void;
        constructor() {
          super();
          (window as unknown as { events: Events }).events = this;
          setTimeout(() => this.onopen?.(), 0);
        }
        close() {}
      }
      Object.assign(window, { EventSource: Events, SharedWorker: undefined });
    });
    await own.goto(`${server.url}#curves`);
    await own.locator(".picture canvas").waitFor();
    const id = await own.evaluate(async () => (await (await fetch("api/studies")).json()).studies[0].id);
    const client = await own.context().newCDPSession(own);
    // Bytes and number of what the page holds. Code is left out: the engine compiles more of it as it grows warm.
    const held = async () => {
      const pieces: string[] = [];
      client.on("HeapProfiler.addHeapSnapshotChunk", ({ chunk }) => pieces.push(chunk));
      await client.send("HeapProfiler.takeHeapSnapshot", { reportProgress: false });
      client.removeAllListeners("HeapProfiler.addHeapSnapshotChunk");
      const { snapshot, nodes } = JSON.parse(pieces.join(""));
      const { node_fields, node_types } = snapshot.meta;
      const [type, size] = [node_fields.indexOf("type"), node_fields.indexOf("self_size")];
      const code = node_types[type].indexOf("code");
      let [bytes, objects] = [0, 0];
      for (let at = 0; at < nodes.length; at += node_fields.length) {
        if (nodes[at + type] === code) continue;
        bytes += nodes[at + size];
        objects++;
      }
      const { nodes: elements, jsEventListeners: listeners } = await client.send("Memory.getDOMCounters");
      return { bytes, objects, elements, listeners };
    };
    const send = (from: number, count: number) =>
      own.evaluate(
        async ([study, first, updates]) => {
          const { events } = window as unknown as { events: EventTarget };
          const runs = ["d4_full_s1", "d4_moba-b16-k2_s1", "d3_full_s1", "resumed"];
          for (let n = 0; n < updates; n++) {
            const step = 2000 + first + n;
            const points = {
              ...{
                run: runs[n % runs.length],
                recorded: step,
                step: [step],
                attempt: [2],
                tokens: [step * 64],
              },
              ...{ loss: [3 + Math.sin(n)], gradNorm: [1], learningRate: [1e-3], tokensPerSecond: [640] },
              ...{ time_s: [step], pflops_days: [step * 1e-12], pflops_days_attended: [step * 1e-12] },
            };
            const data = JSON.stringify({ kind: "points", study, points });
            events.dispatchEvent(new MessageEvent("points", { data }));
            if (n % 40 === 39) {
              await new Promise((done) => setTimeout(done, 62));
            }
          }
        },
        [id, from, count] as const,
      );
    // Until the tracks are as long as they get.
    await send(0, 4000);
    const before = await held();
    await send(4000, 10_000);
    const after = await held();
    for (const what of ["bytes", "objects", "elements", "listeners"] as const)
      expect(after[what] / before[what], `${what}: ${before[what]}, then ${after[what]}`).toBeLessThan(1.1);
    await own.close();
  }, 120_000);
});

describe.skipIf(chromium === null)("a page that stays open", () => {
  it("has each step once while files are cut, replaced and renamed and the server comes back, in every study", async () => {
    const folder = mkdtempSync(join(tmpdir(), "mobalab-open-"));
    const browser = await openBrowser(chromium!);
    const lines = (from: number, to: number, change: object = {}) =>
      Array.from({ length: to - from + 1 }, (_, i) => stepLine(from + i, change)).join("");
    const [shown, other] = ["a", "b"].map((name) => join(folder, name));
    for (const study of [shown, other]) {
      makeStudy(study, study === shown ? "a" : "b");
      makeRun(study, "r", 50);
    }
    let server = await serve({ folders: [folder], port: 0 });
    const port = Number(new URL(server.url).port);
    try {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      const losses = async () => {
        await page.locator(".picture canvas").waitFor();
        // A click is lost while the study is read again: another is made soon.
        const [csv] = await saved(page, "CSV", 2000);
        const rows = csv.trim().split("\n").slice(1);
        return rows
          .map((row) => row.split(","))
          .map(([run, , , tokens, loss]) => [run, Number(tokens) / 64, Number(loss)]);
      };
      const made = (run: string, to: number, loss = (step: number) => 5 / step) =>
        Array.from({ length: to }, (_, i) => [run, i + 1, loss(i + 1)]);
      const show = (study: string) =>
        page.evaluate((to) => {
          location.hash = `curves?smooth=0&study=${to}`;
        }, study);
      await page.goto(`${server.url}#curves?smooth=0&study=b`);
      await expect.poll(losses).toEqual(made("r", 50));
      await show("a");
      await expect.poll(losses).toEqual(made("r", 50));
      append(join(shown, "runs", "r"), "metrics.jsonl", lines(51, 60));
      await expect.poll(losses).toEqual(made("r", 60));
      await server.close();
      append(join(shown, "runs", "r"), "metrics.jsonl", lines(61, 70));
      server = await serve({ folders: [folder], port });
      await expect.poll(losses).toEqual(made("r", 70));
      // Cut while it is watched; of the other study too, which is not in sight.
      for (const study of [shown, other]) {
        const file = join(study, "runs", "r", "metrics.jsonl");
        truncateSync(file, lines(1, 20).length);
        await expect
          .poll(
            async () =>
              (await (await fetch(`${server.url}api/studies/${study === shown ? "a" : "b"}/metrics`)).json())
                .runs[0].step.length,
          )
          .toBe(20);
      }
      await expect.poll(losses).toEqual(made("r", 20));
      await show("b");
      await expect.poll(losses).toEqual(made("r", 20));
      await show("a");
      const file = join(shown, "runs", "r", "metrics.jsonl");
      writeFileSync(`${file}.new`, lines(1, 30, { loss: 7 }));
      renameSync(`${file}.new`, file);
      await expect.poll(losses).toEqual(made("r", 30, () => 7));
      renameSync(join(shown, "runs", "r"), join(shown, "runs", "renamed"));
      await expect.poll(losses).toEqual(made("renamed", 30, () => 7));
      // Zoomed, its steps are read once more, and again when they are others.
      const finer = page.waitForResponse((response) => response.url().includes("points=2000"));
      await page.evaluate(() => {
        location.hash = "curves?smooth=0&study=a&x=64~1920";
      });
      await finer;
      const renamed = join(shown, "runs", "renamed", "metrics.jsonl");
      writeFileSync(`${renamed}.new`, lines(1, 30, { loss: 8 }));
      renameSync(`${renamed}.new`, renamed);
      await expect.poll(losses).toEqual(made("renamed", 30, () => 8));
      rmSync(shown, { recursive: true });
      await expect.poll(() => page.locator("h1").textContent()).toBe("mobalab b");
    } finally {
      await browser.close();
      await server.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }, 90_000);
});

describe.skipIf(chromium === null)("losses out of all measure", () => {
  it("are marks and sentences, and the others' curves keep the axis", async () => {
    const folder = mkdtempSync(join(tmpdir(), "mobalab-measure-"));
    const browser = await openBrowser(chromium!);
    makeStudy(folder);
    const loss = (step: number) => 5 * step ** -0.15;
    for (const [name, odd] of [
      ["plain", {}],
      ["huge", { 200: 1e308, 300: "Infinity" }],
      ["tiny", { 150: 1e-300, 160: 0 }],
      ["other", {}],
    ] as const) {
      const run = makeRun(folder, name, 0);
      const lines = Array.from({ length: 400 }, (_, i) =>
        stepLine(i + 1, { loss: loss(i + 1), ...(i + 1 in odd ? { loss: odd[(i + 1) as never] } : {}) }),
      );
      append(run, "metrics.jsonl", lines.join(""));
      const held = [10, 100, 400].map((step) =>
        evaluationLine(step, step === 100 && name === "huge" ? [1e308, 1e-300] : [loss(step), loss(step)]),
      );
      append(run, "eval.jsonl", held.join(""));
    }
    const server = await serve({ folders: [folder], port: 0 });
    try {
      const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
      const said = complaints(page);
      await page.goto(`${server.url}#curves`);
      await page.locator(".picture canvas").waitFor();
      expect(await page.locator(".events li").allTextContents()).toEqual([
        "huge: training loss is Infinity at step 300; training loss is 1.0000e308, far from all others, at step 200",
        "tiny: training loss is 1.0000e-300, far from all others, at step 150; training loss is 0, which a log axis has no place for, at step 160",
      ]);
      const [svg] = await saved(page, "SVG");
      // Labels of the loss axis: within a decade there are no powers of ten.
      expect(svg).not.toMatch(/10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]{2}/);
      // Two marks at the upper edge, one at the lower.
      expect(svg.match(/class="edge"/g)).toHaveLength(2);
      for (const view of ["scaling", "positions"]) {
        await page.evaluate((to) => {
          location.hash = to;
        }, view);
        await expect
          .poll(() => page.locator("figcaption .note").first().textContent())
          .toMatch(/^Far from all others and not drawn: huge with 1.0000e308 at 0-32|huge with 1.0000e-300/);
        expect(await page.locator(".picture svg[role=img]").first().textContent()).not.toMatch(
          /10[⁰¹²³⁴⁵⁶⁷⁸⁹]{3}|e\+/,
        );
      }
      expect(await page.locator("figcaption .note").allTextContents()).toContain(
        "Not at their end, so not to be compared with others: huge (step 400 of 100), other (step 400 of 100), plain (step 400 of 100), tiny (step 400 of 100).",
      );
      expect(said).toEqual([]);
    } finally {
      await browser.close();
      await server.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }, 60_000);
});

describe.skipIf(chromium === null)("the frozen report", () => {
  it("shows every view from disk with the network off, and asks for nothing", async () => {
    const study = await makeTestStudy();
    const folder = mkdtempSync(join(tmpdir(), "mobalab-frozen-"));
    const browser = await openBrowser(chromium!);
    try {
      const { report } = await frozenStudyReport(study.folder);
      const file = join(folder, "report.html");
      copyFileSync(report, file);
      const context = await browser.newContext({ offline: true, colorScheme: "light" });
      const page = await context.newPage();
      const said = complaints(page);
      const asked: string[] = [];
      page.on("request", (request) => asked.push(request.url()));
      await page.goto(pathToFileURL(file).href);
      expect(await page.getByRole("status").textContent()).toBe("frozen report");
      await expect
        .poll(() => page.locator(".picture svg[role=img] [stroke-dasharray]:not(line)").count())
        .toBe(2);
      expect(await page.locator(".sentences li").count()).toBeGreaterThan(3);
      await checkFiles(page);
      for (const view of VIEWS) {
        await page.evaluate((to) => {
          location.hash = to;
        }, view);
        await page.waitForTimeout(100);
        expect(await page.locator("h2").count()).toBe(1);
        expect(await seriousFindings(page), view).toEqual([]);
      }
      expect(await page.evaluate(() => "hacked" in window)).toBe(false);
      // Pictures that are saved are made of data addresses; nothing else is asked for.
      expect(asked.filter((url) => !/^(data|blob):/.test(url))).toEqual([pathToFileURL(file).href]);
      expect(said).toEqual([]);
    } finally {
      await browser.close();
      study.remove();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

function readMetricsOf(study: TestStudy, run: string) {
  return readMetrics(join(study.folder, "runs", run, "metrics.jsonl"));
}

function focused(page: Page) {
  return page.evaluate(() => document.activeElement?.textContent);
}

/** Presses a button of the first chart and returns the file's text and bytes. */
async function saved(
  page: Page,
  as: string,
  timeout = 30_000,
): Promise<[text: string, bytes: Buffer, download: Download]> {
  const [download] = await Promise.all([
    page.waitForEvent("download", { timeout }),
    page.getByRole("button", { name: as, exact: true }).first().click(),
  ]);
  const bytes = readFileSync(await download.path());
  return [bytes.toString("utf8"), bytes, download];
}

/** The scaling chart's three files. */
async function checkFiles(page: Page): Promise<void> {
  await page.locator(".picture svg[role=img] [stroke-dasharray]:not(line)").first().waitFor();
  const [svg, , download] = await saved(page, "SVG");
  expect(download.suggestedFilename()).toBe("chart.svg");
  expect(svg).toMatch(/^<svg[^>]* xmlns="http:\/\/www.w3.org\/2000\/svg"/);
  expect(svg).toContain('width="860"');
  expect(svg).not.toMatch(/<(script|style|img)/);
  const [, png] = await saved(page, "PNG");
  expect(png.subarray(1, 4).toString()).toBe("PNG");
  expect(png.readUInt32BE(16)).toBe(2 * 860);
  const [csv] = await saved(page, "CSV");
  expect(csv).toMatch(/^series,kind,positions,PFLOP\/s-days,LM loss 32-64,low,high\n/);
  expect(csv).toMatch(/^d4_full_s1,curve,32-64,/m);
  expect(csv).toMatch(/^Full attention projection,projection,32-64,/m);
}
