/** A dataset of made-up text, and run folders on it. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { prepareDataset } from "../../src/data/index.ts";
import { Random } from "../../src/data/random.ts";
import type { Dataset } from "../../src/data/types.ts";
import type { RunConfig } from "../../src/train/types.ts";

/**
 * About `bytes` of text in documents of 1 to 5 contexts: words of a few letters, some more often than others. Without
 * `folder` in a temporary one, which `remove` removes.
 */
export async function makeStudy(
  context: number,
  bytes: number,
  folder = mkdtempSync(join(tmpdir(), "mobalab-gpu-")),
): Promise<{
  folder: string;
  dataset: Dataset;
  run(name: string, config: RunConfig): string;
  remove(): void;
}> {
  const text = join(folder, "text");
  mkdirSync(text, { recursive: true });
  const random = new Random(3);
  const letters = () => String.fromCharCode(97 + random.below(26));
  const words = Array.from({ length: 300 }, () =>
    Array.from({ length: 2 + random.below(6) }, letters).join(""),
  );
  for (let written = 0, d = 0; written < bytes; d++) {
    const length = context + random.below(4 * context);
    let document = "";
    while (document.length < length)
      document += `${words[Math.floor(random.uniform() ** 2 * words.length)]} `;
    writeFileSync(join(text, `${d}.txt`), document);
    written += document.length;
  }
  const dataset = await prepareDataset({
    folder: join(folder, "data"),
    sources: [text],
    tokenizer: "byte",
    context,
  });
  return {
    folder,
    dataset,
    run(name, config) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, "config.json"), JSON.stringify(config));
      return join(folder, name);
    },
    remove: () => rmSync(folder, { recursive: true }),
  };
}
