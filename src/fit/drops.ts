/** Finds a sudden drop in a run's loss curve: a stretch far steeper than what came before it. */
import type { CurvePoint } from "./types.ts";
export function suddenDrop(_points: readonly CurvePoint[]): { atEnd: boolean } | null {
  return null;
}
