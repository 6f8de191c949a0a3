import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import { saveModel } from "../../src/model/checkpoint.ts";
import { Model } from "../../src/model/model.ts";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { exportHuggingFace } from "../../src/study/export.ts";
import { planRuns } from "../../src/study/plan.ts";
import { preset } from "../../src/study/presets.ts";

let folder: string;
let run: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "mobalab-export-"));
  run = join(folder, "run");
  const ladder = { ...preset("quick"), sizes: [{ name: "d1", depth: 1 }], attentions: ["full"] };
  const [{ config }] = planRuns(ladder, { vocabulary: 256, maxDocuments: 1, device: "cpu" });
  const backend = createReferenceBackend();
  const options = { tokens: 1, maxDocuments: 1, training: false, attention: [{ kind: "full" as const }] };
  const model = new Model(backend, config.shape, options);
  model.initialize(1);
  mkdirSync(run);
  writeFileSync(join(run, "config.json"), JSON.stringify(config));
  saveModel(model, join(run, "checkpoint"), config.context);
  writeFileSync(join(run, "checkpoint", "state.json"), "{}");
  backend.close();
});

afterEach(() => rmSync(folder, { recursive: true }));

describe("a checkpoint as a Hugging Face folder", () => {
  it("is copied whole, beside what an export that was ended left", () => {
    const left = join(folder, `out.${process.pid}.tmp`);
    mkdirSync(left);
    writeFileSync(join(left, "tokenizer.json"), "another run's");
    exportHuggingFace(run, join(folder, "out"));
    expect(readdirSync(join(folder, "out")).sort()).toEqual(["config.json", "model.safetensors"]);
    expect(readdirSync(folder).sort()).toEqual(["out", "run"]);
  });

  it("is refused where a file is in the way", () => {
    const out = join(run, "config.json", "out");
    expect(() => exportHuggingFace(run, out)).toThrow(InputError);
    expect(() => exportHuggingFace(run, out)).toThrow(
      /cannot write .*config\.json: there is a file of that name/,
    );
  });

  it.each(["config.json", "model.safetensors"])(
    "is refused with a damaged %s, and nothing is written",
    (file) => {
      truncateSync(join(run, "checkpoint", file), 50);
      expect(() => exportHuggingFace(run, join(folder, "out"))).toThrow(InputError);
      expect(() => exportHuggingFace(run, join(folder, "out"))).toThrow(file);
      expect(existsSync(join(folder, "out"))).toBe(false);
    },
  );
});
