/** Keys and values of each key tile, packed once per key/value head for all of their queries. */
import { packB } from "../micro";
import { Arguments, keyTileAt, roundUp, words } from "./layout";
import { copyRow } from "./rows";

/** Start of head g's panels with `rows` numbers per key. */
// @ts-ignore: decorator
@inline
export function panelsOf(a: Arguments, base: usize, g: i32, padded: i32, rows: i32): usize {
  return base + words((g * a.paddedKeys + padded) * rows);
}

/** Tile index: head * key tiles + key tile. For the forward: keys transposed [D][keys], values [keys][D]. */
export function packForward(a: Arguments, index: i32): void {
  const g = index / a.keyTileCount;
  const tile = keyTileAt(a, index % a.keyTileCount);
  const D = a.headDim;
  const stride = a.kvHeads * D;
  const at = words(tile.start * stride + g * D);
  packB(panelsOf(a, a.keysTransposed, g, tile.padded, D), a.k_TGD + at, 1, stride, D, tile.count);
  packB(panelsOf(a, a.values, g, tile.padded, roundUp(D, 8)), a.v_TGD + at, stride, 1, tile.count, D);
}

/** For the backward: keys [keys][D] as panels, and keys and values as rows that lie side by side. */
export function packBackward(a: Arguments, index: i32): void {
  const g = index / a.keyTileCount;
  const tile = keyTileAt(a, index % a.keyTileCount);
  const D = a.headDim;
  const stride = a.kvHeads * D;
  const at = words(tile.start * stride + g * D);
  packB(panelsOf(a, a.keys, g, tile.padded, roundUp(D, 8)), a.k_TGD + at, stride, 1, tile.count, D);
  const keyRows = panelsOf(a, a.keyRows, g, tile.padded, D);
  const valueRows = panelsOf(a, a.valueRows, g, tile.padded, D);
  for (let i = 0; i < tile.count; i++) {
    copyRow(keyRows + words(i * D), a.k_TGD + at + words(i * stride), D);
    copyRow(valueRows + words(i * D), a.v_TGD + at + words(i * stride), D);
  }
}
