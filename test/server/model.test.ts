/** Models of a study as pages get them: the run's own files, of a bounded size, from within the study and no others. */
import {
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openTokenizer } from "../../src/data/index.ts";
import { loadWeights, modelOf, takeWeights } from "../../src/model/checkpoint.ts";
import { Model } from "../../src/model/model.ts";
import { safetensorsOf } from "../../src/model/safetensors.ts";
import type { Models, ModelView } from "../../src/server/api.ts";
import { studySnapshot } from "../../src/server/freeze.ts";
import { type Serving, serve } from "../../src/server/serve.ts";
import { makeStudyFolder, openBackend } from "../train/run-folder.ts";
import { tinyConfig } from "../train/tiny.ts";
import { ask, makeRun, makeStudy, makeTrainedRun } from "./made.ts";

const backend = openBackend();
let folder = "";
let remove = () => {};
let serving: Serving;
let port = 0;

const trained = (name: string, change: object = {}) =>
  makeTrainedRun(folder, name, tinyConfig({ dataset: "../../data", ...change }));

beforeAll(async () => {
  const made = await makeStudyFolder(32);
  ({ folder, remove } = made);
  makeStudy(folder);
  trained("moba");
  trained("full", { attention: "full" });
  makeRun(folder, "untrained", 3);
  truncateSync(join(trained("large"), "checkpoint", "model.safetensors"), 50_000_001);
  const linked = trained("linked");
  const outside = `${folder}-outside`;
  mkdirSync(outside);
  renameSync(join(linked, "checkpoint"), join(outside, "checkpoint"));
  symlinkSync(join(outside, "checkpoint"), join(linked, "checkpoint"));
  const file = join(trained("linked-file"), "checkpoint", "model.safetensors");
  renameSync(file, join(outside, "model.safetensors"));
  symlinkSync(join(outside, "model.safetensors"), file);
  trained("elsewhere", { dataset: "../../.." });
  const cut = join(trained("cut"), "checkpoint", "config.json");
  writeFileSync(cut, readFileSync(cut, "utf8").slice(0, 40));
  serving = await serve({ folders: [folder], port: 0 });
  port = Number(new URL(serving.url).port);
  const { remove: before } = made;
  remove = () => {
    before();
    rmSync(outside, { recursive: true });
  };
});
afterAll(async () => {
  backend.close();
  await serving.close();
  remove();
});

const study = () => encodeURIComponent(folder.slice(folder.lastIndexOf("/") + 1));
const json = async <T>(path: string) => JSON.parse((await ask(port, path)).body) as T;

describe("models", () => {
  it("are listed where their weights are small enough and within the study", async () => {
    const { models } = await json<Models>(`/api/studies/${study()}/models`);
    expect(models.map(({ run }) => run).sort()).toEqual(["cut", "elsewhere", "full", "moba"]);
    const { bytes } = models.find(({ run }) => run === "moba")!;
    expect(bytes).toBe(readFileSync(join(folder, "runs/moba/checkpoint/model.safetensors")).length);
  });

  it("come with the weights, the tokenizer and held-out text of their run", async () => {
    const view = await json<ModelView>(`/api/studies/${study()}/model?run=moba`);
    expect(view).toMatchObject({ run: "moba", tokenizer: { kind: "byte" }, missing: null });
    const answer = await fetch(`${serving.url}api/studies/${study()}/weights?run=moba`);
    expect(answer.headers.get("content-length")).toBe(String(view.bytes));
    const weights = new Uint8Array(await answer.arrayBuffer());
    const { config, attention, context } = modelOf("config.json", view.config as Record<string, unknown>);
    expect(context).toBe(32);
    const model = new Model(backend, config, { tokens: 32, maxDocuments: 1, training: false, attention });
    takeWeights(model, [safetensorsOf("weights", weights)]);
    const expected = new Model(backend, config, { tokens: 32, maxDocuments: 1, training: false, attention });
    loadWeights(expected, join(folder, "runs/moba/checkpoint"));
    expect(backend.read(model.master)).toEqual(backend.read(expected.master));
    const description = JSON.parse(readFileSync(join(folder, "data/dataset.json"), "utf8"));
    const tokenizer = openTokenizer(join(folder, "data"))!;
    expect(view.samples.length).toBeGreaterThan(0);
    for (const [i, { name, tokens }] of view.samples.entries()) {
      expect(name).toBe(description.heldOut[i].name);
      const text = readFileSync(join(folder, "text", name.split("/").at(-1)!));
      expect(Buffer.from(tokenizer.decode(tokens)).toString()).toBe(text.toString());
    }
  });

  it("say why a text cannot be read when the dataset is elsewhere", async () => {
    const view = await json<ModelView>(`/api/studies/${study()}/model?run=elsewhere`);
    expect(view).toMatchObject({
      ...{ tokenizer: null, samples: [] },
      missing: "the run's dataset leads out of the study folder and is not read",
    });
  });

  it.each(["untrained", "large", "linked", "linked-file", "none", "", "../data", "..%2f..%2fetc", "moba%00"])(
    "are not there for %j",
    async (run) => {
      for (const what of ["model", "weights"]) {
        const { status, body } = await ask(port, `/api/studies/${study()}/${what}?run=${run}`);
        expect(status).toBe(404);
        expect(JSON.parse(body).error).toMatch(/^there is no such run, or no model/);
      }
      expect((await ask(port, `/api/studies/${study()}/${run}/weights?run=moba`)).status).toBe(404);
    },
  );

  it("without a readable configuration are not there", async () => {
    expect((await ask(port, `/api/studies/${study()}/model?run=cut`)).status).toBe(404);
  });

  it("answer a question for their head without a body", async () => {
    const { status, headers, body } = await ask(port, `/api/studies/${study()}/weights?run=moba`, {}, "HEAD");
    expect(status).toBe(200);
    expect(Number(headers["content-length"])).toBeGreaterThan(1000);
    expect(body).toBe("");
  });
});

it("a frozen page carries the largest small MoBA model, weights and all", async () => {
  rmSync(join(folder, "runs/cut"), { recursive: true });
  rmSync(join(folder, "runs/elsewhere"), { recursive: true });
  const { studies } = await studySnapshot(folder);
  const { run, weights, bytes } = studies[0].model!;
  expect(run).toBe("moba");
  expect(bytes).toBe(Buffer.from(weights, "base64").length);
  expect(Buffer.from(weights, "base64")).toEqual(
    readFileSync(join(folder, "runs/moba/checkpoint/model.safetensors")),
  );
});
