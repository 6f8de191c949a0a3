/** Documents on the card: offsets, and each token's document. */
import type { Documents } from "../contract.ts";
import { checkNewDocuments, checkOffsets, sameNumbers } from "../validate.ts";
import { CudaDocuments, documentsOf } from "./context.ts";
import type { Memory } from "./memory.ts";

export class DocumentStore {
  readonly #memory: Memory;
  /** What `offsets_M` and `document_T` are written from. */
  readonly #values = new WeakMap<CudaDocuments, { offsets_M: Int32Array; document_T: Int32Array }>();

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
    let values = this.#values.get(documents);
    if (!values) {
      values = { offsets_M: new Int32Array(maxDocuments + 1), document_T: new Int32Array(tokens) };
      this.#values.set(documents, values);
    }
    const { offsets_M, document_T } = values;
    offsets_M.set(offsets);
    offsets_M.fill(tokens, offsets.length);
    this.#memory.write(documents.offsets_M, offsets_M);
    // Windows of one length give the same offsets in every pass: the table of tokens stays.
    if (sameNumbers(documents.offsets, offsets)) return;
    for (let d = 0; d + 1 < offsets.length; d++) document_T.fill(d, offsets[d], offsets[d + 1]);
    this.#memory.write(documents.document_T, document_T);
    documents.offsets = [...offsets];
  }
}
