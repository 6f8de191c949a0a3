/** What a tokenizer is, the byte tokenizer, and text from tokens as they arrive. */

export interface Tokenizer {
  /** `byte`, `bpe-4096`, `llama3` ...: names the tokenizer in tables. */
  readonly name: string;
  /** Token ids are `0 .. vocabulary - 1`. */
  readonly vocabulary: number;
  /** Bytes of text each id stands for. */
  readonly tokenBytes: Float64Array;
  /** Ids of a text. No token is added at the start or the end. A string is taken as its UTF-8 bytes. */
  encode(text: Uint8Array | string): Int32Array;
  /** The bytes that ids stand for. RangeError for an id outside the vocabulary. */
  decode(tokens: ArrayLike<number>): Uint8Array;
}

/** One token per byte, id = byte value: any bytes, valid UTF-8 or not, come back as they were. */
export const byteTokenizer: Tokenizer = {
  name: "byte",
  vocabulary: 256,
  tokenBytes: new Float64Array(256).fill(1),
  encode(text) {
    return new Int32Array(typeof text === "string" ? new TextEncoder().encode(text) : text);
  },
  decode(tokens) {
    const bytes = new Uint8Array(tokens.length);
    for (let i = 0; i < tokens.length; i++) {
      requireToken(tokens[i], 256);
      bytes[i] = tokens[i];
    }
    return bytes;
  },
};

export function requireToken(token: number, vocabulary: number): void {
  if (!(token >= 0 && token < vocabulary && Number.isInteger(token))) {
    throw new RangeError(`token ${token} is outside the vocabulary 0 .. ${vocabulary - 1}`);
  }
}

/**
 * Text from tokens one at a time: a character whose bytes are spread over several tokens appears with its last one.
 * Bytes that are no UTF-8 appear as U+FFFD; `end` gives what an incomplete last character leaves.
 */
export class IncrementalDecoder {
  readonly #tokenizer: Tokenizer;
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  push(token: number): string {
    return this.#utf8.decode(this.#tokenizer.decode([token]), { stream: true });
  }

  end(): string {
    return this.#utf8.decode();
  }
}
