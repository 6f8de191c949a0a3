/** `dataset.json`: what a dataset folder says of itself. Beside it lie `train.bin`, `heldout.bin` and, for BPE, `tokenizer.json`. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { InputError } from "../errors.ts";

export const FILES = {
  description: "dataset.json",
  tokenizer: "tokenizer.json",
  train: "train.bin",
  heldOut: "heldout.bin",
} as const;

const count = z.int().min(0);
const documents = z.array(z.strictObject({ name: z.string(), tokens: count, bytes: count }));
const tokenFile = z.strictObject({ tokens: count, crc32: count });

const schema = z.strictObject({
  format: z.literal("mobalab dataset"),
  version: z.literal(1),
  tokenizer: z.strictObject({
    name: z.string(),
    /** `byte`: id = byte value. `bpe`: see tokenizer.json. `unknown`: the sources held ids. */
    kind: z.enum(["byte", "bpe", "unknown"]),
  }),
  vocabulary: z.int().min(1),
  source: z.strictObject({
    paths: z.array(z.string()),
    files: count,
    /** Context that held-out documents were chosen for, and the seed of the choice (null: chosen by name). */
    context: z.int().min(1),
    heldOutSeed: count.nullable(),
  }),
  files: z.strictObject({ train: tokenFile, heldOut: tokenFile }),
  train: documents,
  heldOut: documents,
});

export type DatasetFile = z.infer<typeof schema>;

/** InputError when the folder holds no dataset, or its description is not one that this version reads. */
export function readDatasetFile(folder: string): DatasetFile {
  const path = join(folder, FILES.description);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    throw new InputError(
      `${folder} is no dataset: it has no readable ${FILES.description}; make one with mobalab data`,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new InputError(`${path} is not JSON: ${(error as Error).message}`);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new InputError(
      `${path} is no dataset description: ${issue.path.join(".") || "it"}: ${issue.message}`,
    );
  }
  for (const part of ["train", "heldOut"] as const) {
    const sum = parsed.data[part].reduce((total, document) => total + document.tokens, 0);
    if (sum !== parsed.data.files[part].tokens) {
      throw new InputError(
        `${path}: the documents in ${part} have ${sum} tokens together, but files.${part}.tokens is ${parsed.data.files[part].tokens}`,
      );
    }
  }
  return parsed.data;
}
