/** Products with a part of a packed matrix, for tiles on the causal diagonal. */
import { gemmPanels } from "../micro";
import { words } from "./layout";

/**
 * C (+)= A B where B is K consecutive rows, from `first` on, of a matrix whose panels have `panelRows` rows. One panel
 * at a time, because a panel's rows lie side by side but the panels of a part do not.
 */
export function gemmPart(
  c: usize,
  ldc: i32,
  a: usize,
  aRowStride: i32,
  aColStride: i32,
  panels: usize,
  panelRows: i32,
  first: i32,
  M: i32,
  N: i32,
  K: i32,
  accumulate: bool,
): void {
  for (let n = 0; n < N; n += 8) {
    const panel = panels + words((n >> 3) * panelRows * 8 + first * 8);
    gemmPanels(c + words(n), ldc, a, aRowStride, aColStride, panel, M, min(8, N - n), K, accumulate);
  }
}
