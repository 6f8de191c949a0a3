/** Operations that depend on a token's position in its document: RoPE and the key convolution. */
import type { Backend } from "../contract.ts";
import { checkKeyConv, checkSplitRope } from "../validate.ts";
import { at, type Context, dtype, own } from "./context.ts";
import * as id from "./kernel-ids.ts";
import { addPartials, rowTiles } from "./rowwise.ts";

export type PositionalOperations = Pick<
  Backend,
  "splitRopeForward" | "splitRopeBackward" | "keyConvForward" | "keyConvBackward"
>;

const types = { dtype };

export function positionalOperations(context: Context): PositionalOperations {
  const { pool, scratch } = context;
  const table = ropeTables(context);
  return {
    splitRopeForward(q_THD, k_TGD, v_TGD, qkv_TE, documents, theta, firstPosition = 0) {
      const op = "splitRopeForward";
      const tensors = { q_THD, k_TGD, v_TGD, qkv_TE };
      const { T, H, G, D } = checkSplitRope(types, op, tensors, documents, theta, firstPosition);
      const angles = table(firstPosition + T, D, theta) + 4 * firstPosition * D;
      const addresses = [q_THD, k_TGD, v_TGD, qkv_TE].map((tensor) => at(context, tensor));
      const { positionsAddress } = own(context, documents);
      pool.run(id.SPLIT_ROPE_FORWARD, [...addresses, positionsAddress, angles, T, H, G, D], rowTiles(T));
    },
    splitRopeBackward(dQkv_TE, dQ_THD, dK_TGD, dV_TGD, documents, theta) {
      const tensors = { dQkv_TE, dQ_THD, dK_TGD, dV_TGD };
      const { T, H, G, D } = checkSplitRope(types, "splitRopeBackward", tensors, documents, theta);
      const angles = table(T, D, theta);
      const addresses = [dQ_THD, dK_TGD, dV_TGD, dQkv_TE].map((tensor) => at(context, tensor));
      const { positionsAddress } = own(context, documents);
      pool.run(id.SPLIT_ROPE_BACKWARD, [...addresses, positionsAddress, angles, T, H, G, D], rowTiles(T));
    },
    keyConvForward(qkv_TE, keys_TGD, w_WGD, documents, kvHeads) {
      const tensors = { qkv_TE, keys_TGD, w_WGD };
      const { T, E, W, G, D } = checkKeyConv(types, "keyConvForward", tensors, documents, kvHeads);
      const { positionsAddress } = own(context, documents);
      const C = G * D;
      const columns = at(context, qkv_TE) + 4 * (E - 2 * C);
      const keys = at(context, keys_TGD);
      pool.run(id.KEY_CONV_COPY, [keys, columns, T, E, C], rowTiles(T));
      const args = [columns, keys, at(context, w_WGD), positionsAddress, T, E, C, W];
      pool.run(id.KEY_CONV_FORWARD, args, rowTiles(T));
    },
    keyConvBackward(dQkv_TE, dW_WGD, keys_TGD, w_WGD, documents, kvHeads) {
      const tensors = { dQkv_TE, dW_WGD, keys_TGD, w_WGD };
      const { T, E, W, G, D } = checkKeyConv(types, "keyConvBackward", tensors, documents, kvHeads);
      const { positionsAddress } = own(context, documents);
      const C = G * D;
      const columns = at(context, dQkv_TE) + 4 * (E - 2 * C);
      const [keys, w] = [at(context, keys_TGD), at(context, w_WGD)];
      const partials = scratch.need(4 * (rowTiles(T) * W * C + T * C));
      const dZ = partials + 4 * rowTiles(T) * W * C;
      const args = [dZ, partials, columns, keys, w, positionsAddress, T, E, C, W];
      pool.run(id.KEY_CONV_BACKWARD, args, rowTiles(T));
      const keysArgs = [columns, dZ, w, positionsAddress, T, E, C, W];
      pool.run(id.KEY_CONV_BACKWARD_KEYS, keysArgs, rowTiles(T));
      addPartials(context, at(context, dW_WGD), partials, rowTiles(T), W * C);
    },
  };
}

/**
 * Addresses of tables of cosines and sines, [positions][D/2 cosines, D/2 sines], computed in float64 when a head
 * dimension, theta or length is first seen.
 */
function ropeTables(context: Context): (positions: number, D: number, theta: number) => number {
  const tables = new Map<string, { address: number; positions: number }>();
  return (needed, D, theta) => {
    const key = `${D} ${theta}`;
    const known = tables.get(key);
    if (known && known.positions >= needed) return known.address;
    // Decoding asks for one position more with every token: grow by half at least.
    const positions = known ? Math.max(needed, Math.ceil(1.5 * known.positions)) : needed;
    const { memory } = context;
    const address = memory.allocate(4 * positions * D);
    if (known) memory.release(known.address, 4 * known.positions * D);
    tables.set(key, { address, positions });
    for (let position = 0, to = address / 4; position < positions; position++, to += D) {
      for (let i = 0; i < D / 2; i++) {
        const angle = position * theta ** ((-2 * i) / D);
        memory.f32[to + i] = Math.cos(angle);
        memory.f32[to + D / 2 + i] = Math.sin(angle);
      }
    }
    return address;
  };
}
