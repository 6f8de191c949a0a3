/** Models in the page compute what they compute elsewhere, and what they show of routing is what decided it. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAttention } from "../../src/attention/attention.ts";
import { attendedPairs } from "../../src/attention/pairs.ts";
import { learnBpe } from "../../src/data/bpe-learn.ts";
import { tokenizerFileText } from "../../src/data/hugging-face.ts";
import { loadWeights, readModelFolder } from "../../src/model/checkpoint.ts";
import { ladderModel } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import type { ModelView } from "../../src/server/api.ts";
import { modelView } from "../../src/server/model.ts";
import { routingChart } from "../../web/moba/charts.ts";
import { queryRouting, RoutedModel } from "../../web/moba/routed-model.ts";
import { isUtf8 } from "../../web/no-node.ts";
import { makeTrainedRun } from "../server/made.ts";
import { tinyConfig } from "../train/tiny.ts";
import { CONTEXT, makeMobaStudy } from "./moba-study.ts";

const kernels = readFileSync(new URL("../../build/cpu-alone.wasm", import.meta.url));
let study: Awaited<ReturnType<typeof makeMobaStudy>>;
let run = "";
let view: ModelView;
let weights: Buffer;
let page: RoutedModel;

beforeAll(async () => {
  study = await makeMobaStudy();
  run = join(study.folder, "runs/moba");
  view = modelView(study.folder, run, "moba", "../../data")!;
  weights = readFileSync(join(run, "checkpoint/model.safetensors"));
  page = await RoutedModel.open(view, weights, kernels);
});
afterAll(() => {
  page.close();
  study.remove();
});

const text = "Of all that a query may attend to, it attends to its own block and to those it chose. ".repeat(
  3,
);
const tokensOf = (length: number) => page.tokenizer.encode(text).subarray(0, length);

/** The same text alone in a batch, by the training code on three threads. */
function elsewhere(tokens: Int32Array, label: string) {
  const backend = createCpuBackend({ threads: 3, variant: "plain" });
  const folder = readModelFolder(join(run, "checkpoint"));
  const attention = folder.attention.map(() => parseAttention(label));
  const options = { tokens: tokens.length, maxDocuments: 1, training: true, attention };
  const model = new Model(backend, folder.config, options);
  loadWeights(model, folder.folder);
  const targets = new Int32Array(tokens.length).fill(-1);
  targets.set(tokens.subarray(1));
  model.loadBatch({ tokens, targets, offsets: [0, tokens.length] });
  const losses = backend.read(model.forward()).slice(0, -1);
  const routings = attention.map((_, layer) => model.readRouting(layer));
  backend.close();
  return { losses, routings };
}

describe("a model in the page", () => {
  it.each([
    [CONTEXT, "moba-b16-k3"],
    [CONTEXT, "full"],
    [101, "moba-b16-k3"],
    [101, "moba-b8-k4"],
    [7, "moba-b16-k1"],
  ])("reads %i tokens with %s to the bits of the training code", (length, label) => {
    const tokens = tokensOf(length);
    const attention = page.attention.map(() => parseAttention(label));
    const { losses, layers } = page.read(tokens, attention);
    const expected = elsewhere(tokens, label);
    expect(losses).toEqual(expected.losses);
    expect(layers.map((layer) => layer.selected_THS)).toEqual(expected.routings);
  });

  it("takes another block size and top-k with the same weights, and leaves full layers full", async () => {
    expect(page.attentionWith(32, 2).map(({ kind }) => kind)).toEqual(["moba", "moba", "moba"]);
    const hybrid = structuredClone(view.config) as { mobalab: { attention: string[] } };
    hybrid.mobalab.attention = ["moba-b16-k3-shared", "sink-b16-k3", "full"];
    const other = await RoutedModel.open({ ...view, config: hybrid }, weights, kernels);
    expect(other.attentionWith(32, 2)).toEqual([
      { kind: "moba", blockSize: 32, topK: 2, sharedGate: true },
      { kind: "sink", blockSize: 32, topK: 2 },
      { kind: "full" },
    ]);
    const { layers } = other.read(tokensOf(100), other.attentionWith(32, 2));
    expect(layers.map(({ scoredBlocks }) => scoredBlocks > 0)).toEqual([true, false, false]);
    expect(layers[0].gatingHeads).toBe(2);
    other.close();
  });

  it("refuses what it cannot read, in a sentence", async () => {
    const open = (change: Partial<ModelView>, bytes: Uint8Array = weights) =>
      RoutedModel.open({ ...view, ...change }, bytes, kernels);
    await expect(open({ tokenizer: null, missing: "the dataset is gone" })).rejects.toThrow(
      "text cannot be read: the dataset is gone",
    );
    await expect(open({}, weights.subarray(0, 5000))).rejects.toThrow(/is not a valid safetensors file/);
    await expect(open({ config: {} })).rejects.toThrow("the model's configuration: architectures");
    expect(() => page.read(new Int32Array(1), page.attention)).toThrow("1 tokens, expected 2 to 192");
  });

  it("reads text with a tokenizer.json", async () => {
    async function* texts() {
      yield new TextEncoder().encode(text);
    }
    const learned = await learnBpe(256 + 24, texts());
    const file = JSON.parse(tokenizerFileText(learned));
    const tokenizer = { kind: "bpe", name: "bpe-280", file } as const;
    await expect(RoutedModel.open({ ...view, tokenizer }, weights, kernels)).rejects.toThrow(
      "the tokenizer has 280 tokens, the model 256",
    );
    const shape = ladderModel(2, { headDim: 8, vocabulary: 280 });
    const larger = makeTrainedRun(study.folder, "bpe", tinyConfig({ shape, dataset: "../../data" }));
    const known = modelView(study.folder, larger, "bpe", "../../data")!;
    const bytes = readFileSync(join(larger, "checkpoint/model.safetensors"));
    const model = await RoutedModel.open({ ...known, tokenizer }, bytes, kernels);
    const tokens = model.tokenizer.encode(text);
    expect(tokens).toEqual(learned.encode(text));
    expect(tokens.length).toBeLessThan(text.length);
    const { losses } = model.read(tokens.subarray(0, model.most), model.attention);
    expect(losses.every(Number.isFinite)).toBe(true);
    model.close();
  });
});

describe("what is shown of a query", () => {
  it("are the blocks with the largest scores, k - 1 of them at most, and its own", () => {
    const passage = page.read(tokensOf(180), page.attention);
    let attended = 0;
    for (const layer of passage.layers) {
      for (let head = 0; head < 4; head++) {
        for (let query = 0; query < 180; query++) {
          const { own, earlier } = queryRouting(layer, 4, head, query, 16);
          expect(own).toBe(Math.floor(query / 16));
          expect(earlier).toHaveLength(own);
          const chosen = earlier.filter((one) => one.chosen);
          expect(chosen.map(({ rank }) => rank).sort()).toEqual([1, 2].slice(0, own));
          const least = Math.min(...chosen.map(({ score }) => score));
          for (const { chosen: is, score } of earlier) if (!is) expect(score).toBeLessThanOrEqual(least);
          attended += (query % 16) + 1 + 16 * chosen.length;
        }
      }
    }
    expect(attended).toBe(3 * 4 * attendedPairs(parseAttention("moba-b16-k3"), 180));
  });

  it("is every value of the chart", () => {
    const tokens = tokensOf(50);
    const passage = page.read(tokens, page.attention);
    const texts = Array.from(tokens, String);
    const input = { passage, layer: 1, heads: 4, head: 2, blockSize: 16, texts };
    const { rows } = routingChart(input);
    expect(rows).toHaveLength(16 + 32 + 48 + 8);
    for (const { x, y, value, state } of rows) {
      const { own, earlier } = queryRouting(passage.layers[1], 4, 2, y, 16);
      if (x === own) expect(state).toBe("own block");
      else {
        expect(value).toBe(earlier[x].score);
        expect(state!.startsWith("chosen")).toBe(earlier[x].chosen);
      }
    }
  });
});

it("bytes are known for UTF-8 as Node knows them", async () => {
  const node = await import("node:buffer");
  for (const bytes of [[], [0x41], [0xc3, 0xa9], [0xc3], [0xed, 0xa0, 0x80], [0xff], [0xef, 0xbb, 0xbf]]) {
    expect(isUtf8(Uint8Array.from(bytes))).toBe(node.isUtf8(Uint8Array.from(bytes)));
  }
});
