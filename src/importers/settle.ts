/** One curve from rows in the order they were logged: repeated steps, resumed runs and rows out of order. */

export interface Settled<Row> {
  /** In order of x, which is strictly increasing. */
  readonly rows: Row[];
  /** Rows that a later one at the same x took the place of. */
  readonly replaced: number;
  /** How often the run went back to an earlier x and logged on from there. */
  readonly rollbacks: number;
  /** Rows after such a point that the resumed run never reached again; they belong to a branch that was given up. */
  readonly abandoned: number;
  /** Whether the rows came in no order, so that they were sorted. */
  readonly sorted: boolean;
}

/** More falls than this, and in more than a tenth of the rows, are no resumed run but a table without order. */
const FEW_FALLS = 3;

/**
 * The later of two rows at one x wins. Where x falls and stays behind, the run was resumed from a checkpoint: what it had
 * logged from there on is dropped. A single row behind (the next is past all before it) came late and is put in its
 * place. Rows in falling order throughout are turned round.
 */
export function settle<Row>(logged: readonly Row[], xOf: (row: Row) => number): Settled<Row> {
  const rows = logged.length > 1 && isFalling(logged, xOf) ? [...logged].reverse() : logged;
  let falls = 0;
  for (let i = 1; i < rows.length; i++) if (xOf(rows[i]) < xOf(rows[i - 1])) falls++;
  const ordered = falls <= FEW_FALLS || falls <= rows.length / 10;
  const kept: number[] = [];
  const late: number[] = [];
  const dropped = new Set<number>();
  let replaced = 0;
  let rollbacks = 0;
  let top = -Infinity;
  for (let i = 0; i < rows.length; i++) {
    const x = xOf(rows[i]);
    if (x < top) {
      if (!ordered || (i + 1 < rows.length && xOf(rows[i + 1]) > top)) {
        late.push(i);
        continue;
      }
      rollbacks++;
      while (kept.length > 0 && xOf(rows[kept[kept.length - 1]]) >= x) dropped.add(xOf(rows[kept.pop()!]));
    } else if (x === top) {
      replaced++;
      kept.pop();
    }
    if (dropped.delete(x)) replaced++;
    kept.push(i);
    top = x;
  }
  let merged = kept.map((i) => rows[i]);
  if (late.length > 0) {
    const all = [...kept, ...late].sort((a, b) => xOf(rows[a]) - xOf(rows[b]) || a - b);
    const last = all.filter((row, n) => n === all.length - 1 || xOf(rows[all[n + 1]]) !== xOf(rows[row]));
    replaced += all.length - last.length;
    merged = last.map((i) => rows[i]);
  }
  return { rows: merged, replaced, rollbacks, abandoned: dropped.size, sorted: !ordered || rows !== logged };
}

function isFalling<Row>(rows: readonly Row[], xOf: (row: Row) => number): boolean {
  for (let i = 1; i < rows.length; i++) if (!(xOf(rows[i]) < xOf(rows[i - 1]))) return false;
  return true;
}
