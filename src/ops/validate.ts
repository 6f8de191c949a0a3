/**
 * Argument checks that every backend shares: shapes and roles of each operation's tensors, options, document
 * offsets, attention shapes and routing. All throw a `RangeError` that names the operation, the argument, its value
 * and what is allowed.
 *
 * Shapes are checked against the suffix letters of the contract's argument names: `w_NK` must be [N, K]. Letters are
 * bound in the order of the table in arguments.ts, so an error names the argument that disagrees with the ones before
 * it. A tensor of another rank is accepted when its first dimension and its length are right, so that attention's
 * [T, H, D] goes into a linear layer as [T, K].
 */
import { type Attention, checkAttention, earlierBlocks } from "../attention/attention.ts";
import { type Arguments, type Operation, PATTERNS } from "./arguments.ts";
import {
  type AttentionShape,
  type AttentionState,
  type Backend,
  type Documents,
  HYPER_LENGTH,
  type Role,
  type Tensor,
} from "./contract.ts";

/** The sizes bound to the suffix letters. */
export type Dims = { [letter: string]: number };

function refuse(op: string, argument: string, value: unknown, allowed: string): never {
  throw new RangeError(`${op}: ${argument} is ${value}, expected ${allowed}`);
}

/**
 * Checks roles and shapes of an operation's tensors, and returns the sizes of its letters. `known` binds letters
 * that do not come from the tensors. A weight may be stored as "float" and the other way round where the backend has
 * one type for both.
 */
export function checkOperation<O extends Operation>(
  backend: Pick<Backend, "dtype">,
  op: O,
  tensors: Arguments<O>,
  known: Dims = {},
): Dims {
  const patterns = PATTERNS.get(op)!;
  const given = tensors as unknown as Record<string, Tensor | null>;
  const dims: Dims = { ...known };
  for (const { name, dims: pattern } of patterns) {
    const tensor = given[name];
    if (!tensor) continue;
    pattern.forEach(({ factor, letter }, i) => {
      if (letter === "" || letter in dims) return;
      if ((i > 0 && tensor.shape.length !== pattern.length) || tensor.shape[i] % factor !== 0) return;
      dims[letter] = tensor.shape[i] / factor;
    });
  }
  for (const { name, role, dims: pattern } of patterns) {
    const tensor = given[name];
    if (!tensor) continue;
    if (!roleFits(backend, tensor, role)) refuse(op, `the role of ${name}`, `"${tensor.role}"`, `"${role}"`);
    const expected = pattern.map(({ factor, letter }) => factor * (letter === "" ? 1 : dims[letter]));
    const length = expected.reduce((product, n) => product * n, 1);
    const sameRank = tensor.shape.length === expected.length;
    const fits = sameRank
      ? expected.every((n, i) => tensor.shape[i] === n)
      : tensor.shape[0] === expected[0] && tensor.length === length;
    if (!fits) {
      const letters = pattern.map(({ factor, letter }) =>
        factor === 1 && letter ? letter : factor + letter,
      );
      refuse(op, name, shapeText(tensor.shape), `[${letters.join(", ")}] = ${shapeText(expected)}`);
    }
  }
  return dims;
}

function roleFits(backend: Pick<Backend, "dtype">, tensor: Tensor, role: Role): boolean {
  if (tensor.role === role) return true;
  const pair = role === "weight" ? "float" : role === "float" ? "weight" : null;
  return tensor.role === pair && tensor.dtype === backend.dtype(role);
}

function shapeText(shape: readonly number[]): string {
  return `[${shape.map((n) => (Number.isNaN(n) ? "?" : n)).join(", ")}]`;
}

/** A whole number in `low .. high`. */
export function checkWhole(op: string, argument: string, value: number, low: number, high = Infinity): void {
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    refuse(
      op,
      argument,
      value,
      high === Infinity ? `a whole number of at least ${low}` : `a whole number from ${low} to ${high}`,
    );
  }
}

/** A finite number above 0 (`eps`, `theta`). */
export function checkPositive(op: string, argument: string, value: number): void {
  if (!(value > 0 && value < Infinity)) refuse(op, argument, value, "a finite number above 0");
}

// --- memory ------------------------------------------------------------------------------------------------------

/** Checks a new tensor's shape and role, and returns its length. */
export function checkTensorShape(op: string, shape: readonly number[], role: Role): number {
  if (!["activation", "weight", "float", "index"].includes(role)) {
    refuse(op, "role", `"${role}"`, `"activation", "weight", "float" or "index"`);
  }
  if (shape.length === 0) refuse(op, "shape", "[]", "at least one dimension");
  let length = 1;
  for (const n of shape) {
    if (!Number.isSafeInteger(n) || n < 1)
      refuse(op, "shape", shapeText(shape), "whole numbers of at least 1");
    length *= n;
  }
  return length;
}

/** Checks that a view lies inside its tensor, and returns its length. */
export function checkView(tensor: Tensor, offset: number, shape: readonly number[]): number {
  const length = checkTensorShape("view", shape, tensor.role);
  checkWhole("view", "offset", offset, 0, tensor.length);
  if (offset + length > tensor.length) {
    refuse("view", "shape", shapeText(shape), `at most ${tensor.length - offset} elements from ${offset} on`);
  }
  return length;
}

/** Checks the number of values, and that an "index" tensor gets whole 32-bit numbers. */
export function checkWrite(tensor: Tensor, values: ArrayLike<number>): void {
  if (values.length !== tensor.length) {
    refuse("write", "values", `${values.length} numbers`, `${tensor.length}, one per element`);
  }
  if (tensor.role !== "index" || values instanceof Int32Array) return;
  for (let i = 0; i < values.length; i++) {
    if (values[i] !== (values[i] | 0)) refuse("write", `values[${i}]`, values[i], "a whole 32-bit number");
  }
}

/** Copies are between tensors of one length and one type. */
export function checkCopy(out: Tensor, source: Tensor): void {
  if (out.length !== source.length) {
    refuse("copy", "source", `${source.length} elements long`, `${out.length}, the length of out`);
  }
  if (out.dtype !== source.dtype) refuse("copy", "source", source.dtype, `${out.dtype}, the type of out`);
}

/** Sums are of "float" tensors. */
export function checkSum(values: Tensor): void {
  if (values.role !== "float") refuse("sumLater", "values", `a ${values.role} tensor`, "a float one");
}

/** Token ids (`0 .. V - 1`) or, with `none`, targets that may be -1. Only for backends that see the values. */
export function checkTokens(
  op: string,
  argument: string,
  values: ArrayLike<number>,
  vocabulary: number,
  none: boolean,
): void {
  for (let t = 0; t < values.length; t++) {
    if (!(values[t] >= (none ? -1 : 0) && values[t] < vocabulary)) {
      refuse(
        op,
        `${argument}[${t}]`,
        values[t],
        `0 to ${vocabulary - 1}${none ? ", or -1 for no target" : ""}`,
      );
    }
  }
}

// --- documents ---------------------------------------------------------------------------------------------------

export function checkNewDocuments(tokens: number, maxDocuments: number): void {
  checkWhole("documents", "tokens", tokens, 1);
  checkWhole("documents", "maxDocuments", maxDocuments, 1, tokens);
}

/** Refuses offsets that do not start at 0, do not strictly increase, do not end at `tokens`, or are too many. */
export function checkOffsets(documents: Documents, offsets: readonly number[]): void {
  const op = "setDocuments";
  const count = offsets.length - 1;
  if (count < 1 || count > documents.maxDocuments) {
    refuse(
      op,
      "offsets",
      `${offsets.length} numbers long`,
      `2 to ${documents.maxDocuments + 1} (maxDocuments + 1)`,
    );
  }
  if (offsets[0] !== 0) refuse(op, "offsets[0]", offsets[0], "0");
  for (let i = 1; i <= count; i++) {
    if (!Number.isSafeInteger(offsets[i]) || offsets[i] <= offsets[i - 1]) {
      refuse(
        op,
        `offsets[${i}]`,
        offsets[i],
        `a whole number above offsets[${i - 1}] = ${offsets[i - 1]} (no empty document)`,
      );
    }
  }
  if (offsets[count] !== documents.tokens) {
    refuse(op, `offsets[${count}], the last,`, offsets[count], `tokens = ${documents.tokens}`);
  }
}

function checkDocuments(op: string, documents: Documents, tokens: number): void {
  if (documents.tokens !== tokens) refuse(op, "documents.tokens", documents.tokens, `T = ${tokens}`);
}

// --- key convolution and RoPE --------------------------------------------------------------------------------------

/** Returns T, E, W, G, D and H. */
export function checkKeyConv<O extends "keyConvForward" | "keyConvBackward">(
  backend: Pick<Backend, "dtype">,
  op: O,
  tensors: Arguments<O>,
  documents: Documents,
  kvHeads: number,
): Dims {
  checkWhole(op, "kvHeads", kvHeads, 1);
  const dims = checkOperation(backend, op, tensors, { G: kvHeads });
  if (dims.W !== 3 && dims.W !== 5) refuse(op, "the width W of w_WGD", dims.W, "3 or 5");
  checkDocuments(op, documents, dims.T);
  const heads = dims.E / dims.D - 2 * kvHeads;
  if (!Number.isSafeInteger(heads) || heads < 1 || heads % kvHeads !== 0) {
    refuse(
      op,
      "the width E of the fused tensor",
      dims.E,
      `(H + 2 G) D with G = ${kvHeads}, D = ${dims.D} and H a multiple of G`,
    );
  }
  return { ...dims, H: heads };
}

/** Returns T, H, G, D and E. */
export function checkSplitRope<O extends "splitRopeForward" | "splitRopeBackward">(
  backend: Pick<Backend, "dtype">,
  op: O,
  tensors: Arguments<O>,
  documents: Documents,
  theta: number,
  firstPosition = 0,
): Dims {
  const dims = checkOperation(backend, op, tensors);
  checkWhole(op, "firstPosition", firstPosition, 0);
  checkHeads(op, dims.H, dims.G, dims.D);
  const width = (dims.H + 2 * dims.G) * dims.D;
  if (dims.E !== width) refuse(op, "the width E of the fused tensor", dims.E, `(H + 2 G) D = ${width}`);
  checkDocuments(op, documents, dims.T);
  checkPositive(op, "theta", theta);
  return dims;
}

function checkHeads(op: string, heads: number, kvHeads: number, headDim: number): void {
  checkWhole(op, "heads", heads, 1);
  checkWhole(op, "kvHeads", kvHeads, 1);
  if (heads % kvHeads !== 0) refuse(op, "kvHeads", kvHeads, `a divisor of heads = ${heads}`);
  if (!Number.isSafeInteger(headDim) || headDim < 2 || headDim % 2 !== 0) {
    refuse(op, "headDim", headDim, "an even whole number of at least 2");
  }
}

// --- attention -----------------------------------------------------------------------------------------------------

export function checkAttentionShape(shape: AttentionShape): void {
  const op = "attentionState";
  checkWhole(op, "tokens", shape.tokens, 1);
  checkHeads(op, shape.heads, shape.kvHeads, shape.headDim);
  checkWhole(op, "maxDocuments", shape.maxDocuments, 1, shape.tokens);
  checkAttention(shape.attention);
}

/** Checks a call against its state. Returns T, H, G, D. */
export function checkAttentionCall<O extends "route" | "attentionForward" | "attentionBackward">(
  backend: Pick<Backend, "dtype">,
  op: O,
  state: AttentionState,
  tensors: Arguments<O>,
  documents: Documents,
): Dims {
  const { tokens, heads, kvHeads, headDim } = state.shape;
  const dims = checkOperation(backend, op, tensors, { T: tokens, H: heads, G: kvHeads, D: headDim });
  checkStateDocuments(op, state.shape, documents);
  return dims;
}

function checkStateDocuments(op: string, shape: AttentionShape, documents: Documents): void {
  checkDocuments(op, documents, shape.tokens);
  if (documents.maxDocuments > shape.maxDocuments) {
    refuse(op, "documents.maxDocuments", documents.maxDocuments, `at most the state's ${shape.maxDocuments}`);
  }
}

/** Checks a decode call. Returns H, G, D and T, the rows of the cache. */
export function checkDecode(
  backend: Pick<Backend, "dtype">,
  tensors: Arguments<"attentionDecode">,
  length: number,
  attention: Attention,
): Dims {
  const op = "attentionDecode";
  const dims = checkOperation(backend, op, tensors);
  checkHeads(op, dims.H, dims.G, dims.D);
  checkWhole(op, "length", length, 1, dims.T);
  checkAttention(attention);
  return dims;
}

/**
 * Checks `selected_THS`: per query and head, indices of earlier blocks of the query's document, ascending without
 * repeats, then -1. Under a shared gate the heads of a key/value group hold the same choice.
 */
export function checkRouting(
  op: string,
  shape: AttentionShape,
  selected: ArrayLike<number>,
  documents: Documents,
): void {
  checkStateDocuments(op, shape, documents);
  const S = earlierBlocks(shape.attention);
  const expected = shape.tokens * shape.heads * S;
  if (selected.length !== expected) {
    refuse(op, "selected_THS", `${selected.length} numbers long`, `T H S = ${expected}`);
  }
  if (shape.attention.kind === "full") return;
  const { blockSize } = shape.attention;
  const { offsets } = documents;
  for (let d = 0; d + 1 < offsets.length; d++) {
    for (let t = offsets[d]; t < offsets[d + 1]; t++) {
      const block = Math.floor((t - offsets[d]) / blockSize);
      for (let h = 0; h < shape.heads; h++) {
        const row = (t * shape.heads + h) * S;
        checkSelection(op, selected, row, S, block, t);
        const inGroup = h % (shape.heads / shape.kvHeads);
        if (inGroup > 0 && shape.attention.kind === "moba" && shape.attention.sharedGate) {
          checkSame(op, selected, row, row - inGroup * S, S);
        }
      }
    }
  }
}

function checkSelection(
  op: string,
  selected: ArrayLike<number>,
  start: number,
  S: number,
  block: number,
  t: number,
): void {
  let previous = -1;
  let ended = false;
  for (let i = start; i < start + S; i++) {
    const b = selected[i];
    if (b === -1) {
      ended = true;
    } else if (ended || !(b > previous && b < block)) {
      const allowed = ended
        ? "-1 after a -1"
        : `-1 or an earlier block of the document, from ${previous + 1} to ${block - 1}, ascending`;
      refuse(op, `selected_THS[${i}] (query ${t} in block ${block})`, b, allowed);
    } else {
      previous = b;
    }
  }
}

function checkSame(op: string, selected: ArrayLike<number>, row: number, first: number, S: number): void {
  for (let i = 0; i < S; i++) {
    if (selected[row + i] !== selected[first + i]) {
      refuse(
        op,
        `selected_THS[${row + i}]`,
        selected[row + i],
        `${selected[first + i]}, the choice of the group's first head (sharedGate)`,
      );
    }
  }
}

/** Whether two lists of document offsets, say, are the same. */
export function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((n, i) => n === b[i]));
}

// --- optimizer -----------------------------------------------------------------------------------------------------

/** Returns P. */
export function checkAdamw(
  backend: Pick<Backend, "dtype">,
  tensors: Arguments<"adamw">,
  decayed: number,
  hyper: Tensor,
): Dims {
  const dims = checkOperation(backend, "adamw", tensors);
  checkWhole("adamw", "decayed", decayed, 0, dims.P);
  if (hyper.role !== "float") refuse("adamw", "the role of hyper", `"${hyper.role}"`, `"float"`);
  if (hyper.length !== HYPER_LENGTH)
    refuse("adamw", "hyper", `${hyper.length} numbers long`, `${HYPER_LENGTH}`);
  return dims;
}
