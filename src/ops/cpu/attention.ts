/**
 * Attention on the CPU, host side: checks arguments, plans the cut into tiles and runs the kernels of
 * kernels/attention/. Memory beside the tensors: packed keys and values of one call, linear in T.
 */
import { type Attention, earlierBlocks } from "../../attention/attention.ts";
import type { AttentionShape, AttentionState, Documents, Tensor } from "../contract.ts";
import {
  checkAttentionCall,
  checkAttentionShape,
  checkDecode,
  checkRouting,
  sameNumbers,
} from "../validate.ts";
import * as id from "./attention-ids.ts";
import {
  backwardRounds,
  forwardUnits,
  meanGroups,
  type Plan,
  planAttention,
  ROUTE_ROWS,
  ROW_TILE,
  routeUnits,
  type Table,
} from "./attention-plan.ts";
import type { CpuBackend } from "./backend.ts";
import { at, type Context, CpuTensor, dtype } from "./context.ts";
import type { Memory } from "./memory.ts";
import { floatBits } from "./pool.ts";

type AttentionOperations = Pick<
  CpuBackend,
  | "attentionState"
  | "route"
  | "routeWithScores"
  | "readRouting"
  | "writeRouting"
  | "attentionForward"
  | "attentionBackward"
  | "attentionDecode"
>;

/** The fields of kernels/attention/layout.ts `Arguments`, in its order. */
const FIELDS = [
  ...["q", "k", "v", "out", "lse", "selected", "scores", "dOut", "dQ", "dK", "dV", "delta"],
  ...["documents", "blocks", "keyTiles", "units", "keysTransposed", "values", "keys", "keyRows", "valueRows"],
  ...["means", "meanGroups", "meanGroupCount", "tokens", "heads", "kvHeads", "headDim", "blockSize"],
  ...["selectedCount", "keyTileSize", "rowTileSize", "chunkSize", "maxBlocks", "keyTileCount", "paddedKeys"],
  ...["paddedMeans", "sharedGate", "gate", "scale", "scratch", "scratchStride"],
];
type Arguments = { [field: string]: number };

const GATES = { full: 0, moba: 1, window: 2, sink: 3 } as const;

class CpuAttentionState implements AttentionState {
  readonly shape: AttentionShape;
  readonly lse: CpuTensor;
  readonly memory: Memory;
  /** Address of `selected_THS`. */
  readonly selected: number;
  readonly selectedLength: number;
  /** The documents that the routing was made for; null before, when nothing is selected. */
  routedFor: readonly number[] | null = null;

  constructor(memory: Memory, shape: AttentionShape) {
    const { tokens, heads } = shape;
    this.shape = { ...shape };
    this.memory = memory;
    this.lse = new CpuTensor(
      memory,
      memory.allocate(4 * tokens * heads),
      [tokens, heads],
      tokens * heads,
      "float",
    );
    this.selectedLength = tokens * heads * earlierBlocks(shape.attention);
    this.selected = memory.allocate(4 * this.selectedLength);
    this.routing().fill(-1);
  }

  /** The routing in place. */
  routing(): Int32Array {
    return this.memory.i32.subarray(this.selected / 4, this.selected / 4 + this.selectedLength);
  }
}

export function attentionOperations(context: Context): AttentionOperations {
  const { memory, pool } = context;
  const backend = { dtype };

  const own = (state: AttentionState): CpuAttentionState => {
    if (state instanceof CpuAttentionState && state.memory === memory) return state;
    throw new RangeError("the attention state belongs to another backend");
  };

  const shapeArguments = (shape: AttentionShape): Arguments => ({
    tokens: shape.tokens,
    heads: shape.heads,
    kvHeads: shape.kvHeads,
    headDim: shape.headDim,
    selectedCount: earlierBlocks(shape.attention),
    gate: GATES[shape.attention.kind],
    sharedGate: shape.attention.kind === "moba" && shape.attention.sharedGate ? 1 : 0,
    scale: floatBits(1 / Math.sqrt(shape.headDim)),
    rowTileSize: ROW_TILE,
  });

  const planArguments = (plan: Plan): Arguments => ({
    blockSize: plan.blockSize,
    keyTileSize: plan.keyTileSize,
    chunkSize: plan.chunkSize,
    maxBlocks: plan.maxBlocks,
    keyTileCount: plan.keyTiles.count,
    paddedKeys: plan.paddedKeys,
    paddedMeans: plan.paddedMeans,
  });

  /** Lays out tables and buffers (in floats) in the operation's scratch; returns their addresses. */
  const place = (tables: { [name: string]: Table }, buffers: { [name: string]: number }): Arguments => {
    const addresses: Arguments = {};
    let bytes = 0;
    const reserve = (name: string, words: number) => {
      addresses[name] = bytes;
      bytes += Math.ceil(words / 16) * 64;
    };
    for (const [name, { words }] of Object.entries(tables)) reserve(name, words.length);
    for (const [name, words] of Object.entries(buffers)) reserve(name, words);
    const start = context.scratch.need(roomy(bytes));
    for (const name of Object.keys(addresses)) addresses[name] += start;
    for (const [name, { words }] of Object.entries(tables)) memory.i32.set(words, addresses[name] / 4);
    return addresses;
  };

  const workerScratch = (words: number): Arguments => {
    const { address, stride } = context.workerScratch(roomy(4 * words));
    return { scratch: address, scratchStride: stride };
  };

  const run = (kernel: number, args: Arguments, tiles: number) =>
    pool.run(
      kernel,
      FIELDS.map((field) => args[field] ?? 0),
      tiles,
    );

  /** The routing must fit the documents; one that was made for them does. */
  const checkRouted = (op: string, state: CpuAttentionState, documents: Documents) => {
    const { routedFor } = state;
    if (!routedFor || sameNumbers(routedFor, documents.offsets)) return;
    checkRouting(op, state.shape, state.routing(), documents);
  };

  /** Routes; returns the gate scores when they are wanted. */
  const route = (
    state: CpuAttentionState,
    q_THD: Tensor,
    k_TGD: Tensor,
    documents: Documents,
    wantsScores: boolean,
  ): Float32Array => {
    checkAttentionCall(backend, "route", state, { q_THD, k_TGD }, documents);
    const { shape } = state;
    const { kvHeads, headDim, attention } = shape;
    const S = earlierBlocks(attention);
    if (S === 0) return new Float32Array(0);
    const plan = planAttention(shape, documents.offsets);
    const shared = attention.kind === "moba" && attention.sharedGate;
    const gatingHeads = attention.kind !== "moba" ? 1 : shared ? kvHeads : shape.heads;
    const groups = meanGroups(plan, documents.offsets);
    const units = routeUnits(documents.offsets, gatingHeads);
    const kept = wantsScores && attention.kind === "moba" ? shape.tokens * gatingHeads * plan.maxBlocks : 0;
    const args: Arguments = {
      ...shapeArguments(shape),
      ...planArguments(plan),
      ...place(
        { documents: plan.documents, units, meanGroups: groups },
        { means: kvHeads * plan.paddedMeans * headDim, scores: kept },
      ),
      ...workerScratch(ROUTE_ROWS * (headDim + 128 + 1 + 2 * S) + 10 * headDim + 64),
      meanGroupCount: groups.count,
      q: at(context, q_THD),
      k: at(context, k_TGD),
      selected: state.selected,
    };
    if (kept === 0) args.scores = 0;
    const scores = () => memory.f32.subarray(args.scores / 4, args.scores / 4 + kept);
    scores().fill(Number.NaN);
    if (attention.kind === "moba") {
      run(id.ATTENTION_MEANS, args, kvHeads * groups.count);
      run(id.ATTENTION_ROUTE, args, units.count);
    } else {
      run(id.ATTENTION_STATIC_GATE, args, units.count);
    }
    state.routedFor = documents.offsets;
    return new Float32Array(scores());
  };

  return {
    attentionState(shape: AttentionShape): AttentionState {
      checkAttentionShape(shape);
      return new CpuAttentionState(memory, shape);
    },

    route(given: AttentionState, q_THD: Tensor, k_TGD: Tensor, documents: Documents): void {
      route(own(given), q_THD, k_TGD, documents, false);
    },

    routeWithScores(given, q_THD, k_TGD, documents) {
      return route(own(given), q_THD, k_TGD, documents, true);
    },

    readRouting(state: AttentionState): Int32Array {
      return new Int32Array(own(state).routing());
    },

    writeRouting(given: AttentionState, selected_THS: Int32Array, documents: Documents): void {
      const state = own(given);
      checkRouting("writeRouting", state.shape, selected_THS, documents);
      state.routing().set(selected_THS);
      state.routedFor = documents.offsets;
    },

    attentionForward(
      given: AttentionState,
      out_THD: Tensor,
      q_THD: Tensor,
      k_TGD: Tensor,
      v_TGD: Tensor,
      documents: Documents,
    ): void {
      const op = "attentionForward";
      const state = own(given);
      checkAttentionCall(backend, op, state, { out_THD, q_THD, k_TGD, v_TGD }, documents);
      checkRouted(op, state, documents);
      const { shape } = state;
      const { heads, kvHeads, headDim: D } = shape;
      const S = earlierBlocks(shape.attention);
      const plan = planAttention(shape, documents.offsets);
      const units = forwardUnits(plan, heads, S > 0);
      const width = Math.ceil(D / 8) * 8;
      const { keyTileSize, chunkSize, maxBlocks, paddedKeys } = plan;
      const args: Arguments = {
        ...shapeArguments(shape),
        ...planArguments(plan),
        ...place(
          { documents: plan.documents, blocks: plan.blocks, keyTiles: plan.keyTiles, units },
          { keysTransposed: kvHeads * paddedKeys * D, values: kvHeads * paddedKeys * width },
        ),
        // As carved in kernels/attention/forward.ts.
        ...workerScratch(
          ROW_TILE * (D + keyTileSize + 16 + width + 3) + chunkSize * (2 + S) + maxBlocks + 64,
        ),
        q: at(context, q_THD),
        k: at(context, k_TGD),
        v: at(context, v_TGD),
        out: at(context, out_THD),
        lse: state.lse.address,
        selected: state.selected,
      };
      run(id.ATTENTION_PACK_FORWARD, args, kvHeads * plan.keyTiles.count);
      run(id.ATTENTION_FORWARD, args, units.count);
    },

    attentionBackward(
      given: AttentionState,
      dQ_THD: Tensor,
      dK_TGD: Tensor,
      dV_TGD: Tensor,
      dOut_THD: Tensor,
      out_THD: Tensor,
      q_THD: Tensor,
      k_TGD: Tensor,
      v_TGD: Tensor,
      documents: Documents,
    ): void {
      const op = "attentionBackward";
      const state = own(given);
      const tensors = { dQ_THD, dK_TGD, dV_TGD, dOut_THD, out_THD, q_THD, k_TGD, v_TGD };
      checkAttentionCall(backend, op, state, tensors, documents);
      checkRouted(op, state, documents);
      const { shape } = state;
      const { tokens, heads, kvHeads, headDim: D } = shape;
      const S = earlierBlocks(shape.attention);
      const plan = planAttention(shape, documents.offsets);
      const { units, rounds } = backwardRounds(plan, kvHeads);
      const width = Math.ceil(D / 8) * 8;
      const { keyTileSize, chunkSize, maxBlocks, paddedKeys } = plan;
      const M = Math.ceil(ROW_TILE / 8) * 8;
      const args: Arguments = {
        ...shapeArguments(shape),
        ...planArguments(plan),
        ...place(
          { documents: plan.documents, blocks: plan.blocks, keyTiles: plan.keyTiles, units },
          {
            keys: kvHeads * paddedKeys * width,
            keyRows: kvHeads * paddedKeys * D,
            valueRows: kvHeads * paddedKeys * D,
            delta: tokens * heads,
          },
        ),
        // As carved in kernels/attention/backward.ts.
        ...workerScratch(
          M * (3 * D + 3 * width + 3) + 2 * keyTileSize * (M + 16) + chunkSize * S + maxBlocks + 64,
        ),
        q: at(context, q_THD),
        k: at(context, k_TGD),
        v: at(context, v_TGD),
        out: at(context, out_THD),
        lse: state.lse.address,
        selected: state.selected,
        dOut: at(context, dOut_THD),
        dQ: at(context, dQ_THD),
        dK: at(context, dK_TGD),
        dV: at(context, dV_TGD),
      };
      run(id.ATTENTION_PACK_BACKWARD, args, kvHeads * plan.keyTiles.count);
      const unitBytes = 4 * (units.words.length / units.count);
      let first = args.units;
      for (const count of rounds) {
        run(id.ATTENTION_BACKWARD, { ...args, units: first }, count);
        first += count * unitBytes;
      }
    },

    attentionDecode(
      out_HD: Tensor,
      q_HD: Tensor,
      kCache_TGD: Tensor,
      vCache_TGD: Tensor,
      length: number,
      attention: Attention,
    ): void {
      const { H, G, D } = checkDecode(backend, { out_HD, q_HD, kCache_TGD, vCache_TGD }, length, attention);
      const S = earlierBlocks(attention);
      const shape = { tokens: length, heads: H, kvHeads: G, headDim: D, maxDocuments: 1, attention };
      const args: Arguments = {
        ...shapeArguments(shape),
        blockSize: attention.kind === "full" ? 0x7fffffff : attention.blockSize,
        // As carved in kernels/attention/decode.ts.
        ...workerScratch(128 + 64 + 2 * S + 19 * D),
        q: at(context, q_HD),
        k: at(context, kCache_TGD),
        v: at(context, vCache_TGD),
        out: at(context, out_HD),
      };
      run(id.ATTENTION_DECODE, args, G);
    },
  };
}

/**
 * Rounds up by less than an eighth. The need varies a little with the documents of a batch: without steps the scratch
 * would grow again and again.
 */
function roomy(bytes: number): number {
  const step = 2 ** Math.max(0, Math.floor(Math.log2(bytes)) - 3);
  return Math.ceil(bytes / step) * step;
}
