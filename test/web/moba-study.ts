/** A study with models that a page can compute with, for the tests of the page on routing. */
import { rmSync } from "node:fs";
import { ladderModel } from "../../src/model/config.ts";
import { makeStudy, makeTrainedRun } from "../server/made.ts";
import { makeStudyFolder } from "../train/run-folder.ts";
import { tinyConfig } from "../train/tiny.ts";

export const CONTEXT = 192;

/** Two runs of three layers and four heads, two of them for keys and values: `moba` (b16-k3) and `full`. */
export async function makeMobaStudy(): Promise<{ folder: string; remove(): void }> {
  const { folder } = await makeStudyFolder(CONTEXT);
  makeStudy(folder, "routing");
  const shape = {
    ...ladderModel(4, { headDim: 8, kvHeads: 2, vocabulary: 256 }),
    ...{ layers: 3, feedForward: 64 },
  };
  for (const [name, attention] of [
    ["moba", "moba-b16-k3"],
    ["full", "full"],
  ]) {
    const config = tinyConfig({ shape, attention, context: CONTEXT, dataset: "../../data" });
    makeTrainedRun(folder, name, config);
  }
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }) };
}
