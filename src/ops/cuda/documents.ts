/** Documents on the card: offsets, and each token's document. */
import type { Documents } from "../contract.ts";
import { checkNewDocuments, checkOffsets, sameNumbers } from "../validate.ts";
import { CudaDocuments, documentsOf } from "./context.ts";
import type { Memory } from "./memory.ts";

export class DocumentStore {
  readonly #memory: Memory;

  constructor(memory: Memory) {
    this.#memory = memory;
  }

  make(tokens: number, maxDocuments: number): Documents {
    checkNewDocuments(tokens, maxDocuments);
    const offsets_M = this.#memory.tensor([maxDocuments + 1], "index");
    const document_T = this.#memory.tensor([tokens], "index");
    const documents = new CudaDocuments(tokens, maxDocuments, offsets_M, document_T);
    this.#upload(documents, [0, tokens]);
    return documents;
  }

  set(documents: Documents, offsets: readonly number[]): void {
    checkOffsets(documents, offsets);
    this.#upload(documentsOf(documents), offsets);
  }

  #upload(documents: CudaDocuments, offsets: readonly number[]): void {
    const { tokens, maxDocuments } = documents;
    const padded = new Int32Array(maxDocuments + 1).fill(tokens);
    padded.set(offsets);
    this.#memory.write(documents.offsets_M, padded);
    // Windows of one length give the same offsets in every pass: the table of tokens stays.
    if (sameNumbers(documents.offsets, offsets)) return;
    const document_T = new Int32Array(tokens);
    for (let d = 1; d + 1 < offsets.length; d++) document_T.fill(d, offsets[d], offsets[d + 1]);
    this.#memory.write(documents.document_T, document_T);
    documents.offsets = [...offsets];
  }
}
