/** The page on routing in a browser: served, and frozen and opened from disk without network. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { causalPairs } from "../../src/attention/pairs.ts";
import { formatFixed, formatNumber } from "../../src/report/labels.ts";
import { readFrozenPage } from "../../src/server/assets.ts";
import { frozenPage, studySnapshot } from "../../src/server/freeze.ts";
import { modelView } from "../../src/server/model.ts";
import { type Serving, serve } from "../../src/server/serve.ts";
import { queryRouting, RoutedModel } from "../../web/moba/routed-model.ts";
import { complaints, findChromium, openBrowser, seriousFindings } from "./browser.ts";
import { CONTEXT, makeMobaStudy } from "./moba-study.ts";

const chromium = findChromium();
const TEXT =
  "A query attends to its own block, and to the earlier blocks that it chose by their gate scores. ";

describe.skipIf(chromium === null)("how MoBA routes", () => {
  let study: Awaited<ReturnType<typeof makeMobaStudy>>;
  let server: Serving;
  let browser: Browser;
  let page: Page;
  let said: string[];
  let model: RoutedModel;

  beforeAll(async () => {
    study = await makeMobaStudy();
    const run = join(study.folder, "runs/moba");
    model = await RoutedModel.open(
      modelView(study.folder, run, "moba", "../../data")!,
      readFileSync(join(run, "checkpoint/model.safetensors")),
      readFileSync(new URL("../../build/cpu-alone.wasm", import.meta.url)),
    );
    server = await serve({ folders: [study.folder], port: 0 });
    browser = await openBrowser(chromium!);
    page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
    page.setDefaultTimeout(10_000);
    said = complaints(page);
    await page.goto(`${server.url}#moba`);
    await page.locator(".moba .figures").waitFor();
  });
  afterAll(async () => {
    model?.close();
    await browser?.close();
    await server?.close();
    study?.remove();
  });

  const figures = (on = page) => on.locator(".moba .figures").textContent();
  const readout = (on = page) => on.locator(".readout").first().textContent();
  const list = (name: string, on = page) =>
    on.locator("label", { hasText: new RegExp(`^${name}`) }).getByRole("combobox");
  const tokensOf = (text: string) => model.tokenizer.encode(text).subarray(0, CONTEXT);
  const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / values.length;

  it("starts with held-out text and a MoBA model of the study", async () => {
    expect(await list("Model").inputValue()).toBe("moba");
    expect(await list("Block size B").locator("option:checked").textContent()).toBe("16 (trained)");
    expect(await list("Top-k").locator("option:checked").textContent()).toBe("3 (trained)");
    const { name } = JSON.parse(readFileSync(join(study.folder, "data/dataset.json"), "utf8")).heldOut[0];
    const held = readFileSync(join(study.folder, "text", name.split("/").at(-1)), "utf8");
    expect(await page.getByLabel("Text", { exact: true }).inputValue()).toBe(held);
  });

  it("reads a text of the reader's choice, with the losses that the training code has for it", async () => {
    await page.getByLabel("Text", { exact: true }).fill(TEXT);
    await expect.poll(figures).toContain(`${TEXT.length} tokens.`);
    const tokens = tokensOf(TEXT);
    const routed = model.read(tokens, model.attention);
    const full = model.read(
      tokens,
      model.attention.map(() => ({ kind: "full" })),
    );
    let attended = 0;
    for (let query = 0; query < tokens.length; query++) {
      attended += (query % 16) + 1 + 16 * Math.min(2, Math.floor(query / 16));
    }
    const shown = await figures();
    expect(shown).toContain(
      `${formatFixed((100 * attended) / causalPairs(tokens.length), 1)} % of causal pairs attended`,
    );
    expect(shown).toContain(`Loss ${formatFixed(mean(routed.losses), 4)} nats per token routed`);
    expect(shown).toContain(`${formatFixed(mean(full.losses), 4)} with full attention`);
  });

  it("tells for each query the blocks that it chose, with ranks and scores", async () => {
    await page.getByRole("spinbutton", { name: "Query" }).fill("77");
    await list("Layer").selectOption("2");
    await list("Head").selectOption("3");
    const { earlier } = queryRouting(model.read(tokensOf(TEXT), model.attention).layers[1], 4, 2, 77, 16);
    const rows = page.locator(".choices tbody tr");
    await expect.poll(() => rows.count()).toBe(4);
    const order = [...earlier.entries()].sort(([, a], [, b]) => a.rank - b.rank);
    const expected = order.map(([block, { rank, score, chosen }]) =>
      [block, rank, formatNumber(score, 4), chosen ? "yes" : "no"].join(""),
    );
    await expect
      .poll(
        async () =>
          await rows.evaluateAll((all) =>
            all.map((row) =>
              [...row.children]
                .slice(0, 4)
                .map((cell) => cell.textContent)
                .join(""),
            ),
          ),
      )
      .toEqual(expected);
    expect(await page.locator(".reading .taken .tag").allTextContents()).toEqual(
      [...earlier.entries()]
        .filter(([, { chosen }]) => chosen)
        .map(([block, { score }]) => `${block}chosen ${formatNumber(score, 3)}`),
    );
    expect(await page.locator(".reading .own .tag").textContent()).toBe("4own");
    expect(await page.locator(".reading .query").textContent()).toBe(TEXT[77]);
  });

  it("can be read by arrow keys, in the text and in the chart", async () => {
    await page.locator(".reading").focus();
    await page.keyboard.press("ArrowRight");
    await expect.poll(() => page.locator(".choices p").first().textContent()).toContain("Query 78,");
    await page.keyboard.press("ArrowUp");
    await expect.poll(() => page.locator(".choices p").first().textContent()).toContain("Query 62,");
    await page.locator(".picture").first().focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await expect.poll(() => readout()).toContain("block 0, query 1: own block");
    await expect.poll(() => page.locator(".choices p").first().textContent()).toContain("Query 1,");
  });

  it("changes the query under the pointer, and keeps the one that was pressed", async () => {
    await page.locator("[data-token='40']").hover();
    await expect.poll(() => page.locator(".choices p").first().textContent()).toContain("Query 40,");
    await page.locator("[data-token='41']").click();
    await page.locator("[data-token='50']").hover();
    expect(await page.locator(".choices p").first().textContent()).toContain("Query 41,");
  });

  it("colours the tokens that routing makes dearer and cheaper", async () => {
    await list("Top-k").selectOption("1");
    await page.getByText("what routing costs", { exact: true }).click();
    const tokens = tokensOf(TEXT);
    const routed = model.read(tokens, model.attentionWith(16, 1));
    const full = model.read(
      tokens,
      model.attention.map(() => ({ kind: "full" })),
    );
    const dearer = [...routed.losses].flatMap((loss, i) => (loss - full.losses[i] >= 0.05 ? [i + 1] : []));
    expect(dearer.length).toBeGreaterThan(0);
    await expect
      .poll(() =>
        page
          .locator(".reading .dearer")
          .evaluateAll((all) => all.map((one) => Number((one as HTMLElement).dataset.token))),
      )
      .toEqual(dearer);
    await page.getByText("blocks", { exact: true }).click();
    await list("Top-k").selectOption("3");
  });

  it("takes another block size and top-k, which the link keeps", async () => {
    await list("Block size B").selectOption("32");
    await list("Top-k").selectOption("1");
    await expect.poll(() => page.locator("figcaption p").first().textContent()).toContain("With k = 1");
    expect(new URL(page.url()).hash).toMatch(/layer=2.*head=3.*block=32.*k=1/);
    await list("Top-k").selectOption("8");
    const shown = await figures();
    await expect.poll(figures).toContain("100.0 % of causal pairs");
    const there = await browser.newPage();
    await there.goto(page.url());
    await there.locator(".moba .figures").waitFor();
    expect(await list("Layer", there).inputValue()).toBe("2");
    expect(await list("Block size B", there).inputValue()).toBe("32");
    await there.close();
    expect(shown).not.toBe("");
    await list("Block size B").selectOption("16");
    await list("Top-k").selectOption("3");
  });

  it("routes with the weights of a run that was trained with full attention", async () => {
    await list("Model").selectOption("full");
    await expect.poll(() => page.locator(".moba .figures").count()).toBe(1);
    expect(await list("Top-k").locator("option:checked").textContent()).toBe("3");
    await list("Model").selectOption("moba");
    await page.locator(".moba .figures").waitFor();
  });

  it("saves the picture as SVG, PNG and CSV", async () => {
    await page.getByLabel("Text", { exact: true }).fill(TEXT);
    await expect.poll(figures).toContain(`${TEXT.length} tokens.`);
    const frame = page.locator(".chart").first();
    const save = async (as: string) => {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        frame.getByRole("button", { name: as }).click(),
      ]);
      return readFileSync(await download.path());
    };
    expect((await save("SVG")).toString()).toMatch(/^<svg.*viewBox="0 0 96 96"/s);
    expect((await save("PNG")).subarray(1, 4).toString()).toBe("PNG");
    const [head, ...rows] = (await save("CSV")).toString().trimEnd().split("\n");
    expect(head).toBe("series,kind,positions,block,query,low,high,gate score,state");
    expect(rows).toHaveLength(96 + (96 * 5) / 2);
  });

  it("says what cannot be read, and goes on", async () => {
    await page.getByLabel("Text", { exact: true }).fill("x");
    await expect.poll(() => page.locator(".moba").textContent()).toContain("Write at least two tokens.");
    await page.getByLabel("Text", { exact: true }).fill(TEXT.repeat(4));
    await expect.poll(figures).toContain(`${CONTEXT} tokens (the first; ${4 * TEXT.length - CONTEXT} more`);
  });

  it.each(["light", "dark"] as const)("has no serious finding of axe (%s)", async (colorScheme) => {
    await page.emulateMedia({ colorScheme });
    for (const colours of ["what routing costs", "blocks"]) {
      await page.getByText(colours, { exact: true }).click();
      await page.waitForTimeout(200);
      expect(await seriousFindings(page), colours).toEqual([]);
    }
    await page.emulateMedia({ colorScheme: "light" });
  });

  it("fits 360 pixels", async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await page.waitForTimeout(300);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  it("has had nothing to complain about", () => {
    expect(said).toEqual([]);
  });

  it("computes in a frozen report from disk, without network and without shared memory", async () => {
    const folder = mkdtempSync(join(tmpdir(), "mobalab-moba-"));
    const report = join(folder, "report.html");
    writeFileSync(report, frozenPage(readFrozenPage()!, await studySnapshot(study.folder), ""));
    const there = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const complained = complaints(there);
    await there.context().setOffline(true);
    await there.goto(`${pathToFileURL(report)}#moba`);
    await there.locator(".moba .figures").waitFor();
    expect(await there.evaluate(() => typeof SharedArrayBuffer)).toBe("undefined");
    await there.getByLabel("Text", { exact: true }).fill(TEXT);
    await expect.poll(() => figures(there)).toContain(`${TEXT.length} tokens.`);
    const routed = model.read(tokensOf(TEXT), model.attention);
    expect(await figures(there)).toContain(
      `Loss ${formatFixed(mean(routed.losses), 4)} nats per token routed`,
    );
    expect(complained).toEqual([]);
    await there.close();
    rmSync(folder, { recursive: true });
  });
});
