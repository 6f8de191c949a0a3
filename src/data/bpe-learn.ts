/** Learns a byte-level BPE from text. */
import { InputError } from "../errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

export async function learnBpe(vocabulary: number, _texts: AsyncIterable<Uint8Array>): Promise<Tokenizer> {
  throw new InputError(`bpe-${vocabulary}: not learned yet`);
}
