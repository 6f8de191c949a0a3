/** `mobalab generate` on a Hugging Face folder. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { parseAttention } from "../../src/attention/attention.ts";
import { learnBpe } from "../../src/data/bpe-learn.ts";
import { tokenizerFileText } from "../../src/data/hugging-face.ts";
import { saveModel } from "../../src/model/checkpoint.ts";
import { ladderModel } from "../../src/model/config.ts";
import { Model } from "../../src/model/model.ts";
import { createCpuBackend } from "../../src/ops/cpu/index.ts";
import { mobalab } from "./run-cli.ts";

it("takes embeddings padded beyond the tokenizer: such an id has no text", async () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-generate-"));
  async function* texts() {
    yield new TextEncoder().encode("the people of the people by the people");
  }
  const learned = await learnBpe(260, texts());
  const backend = createCpuBackend({ threads: 1 });
  try {
    const shape = ladderModel(1, { headDim: 16, vocabulary: 2 * learned.vocabulary });
    const model = new Model(backend, shape, {
      ...{ tokens: 1, maxDocuments: 1, training: false },
      attention: ["full"].map(parseAttention),
    });
    model.initialize(1);
    saveModel(model, folder, 64);
    writeFileSync(join(folder, "tokenizer.json"), tokenizerFileText(learned));
    const args = ["generate", folder, "--prompt", "the", "--tokens", "20", "--temperature", "100", "--json"];
    const { code, stdout, stderr } = await mobalab(args);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    const { text: answer, tokens } = JSON.parse(stdout) as { text: string; tokens: number[] };
    const known = tokens.filter((token) => token < learned.vocabulary);
    expect(known.length).toBeLessThan(tokens.length);
    expect(answer).toBe(new TextDecoder().decode(learned.decode(known)));
    const long = await mobalab(["generate", folder, "--prompt", "x".repeat(100)]);
    expect(long).toEqual({
      code: 2,
      stdout: "",
      stderr: "mobalab: the prompt has 100 tokens, expected fewer than the context, 64\n",
    });
  } finally {
    backend.close();
    rmSync(folder, { recursive: true });
  }
});
