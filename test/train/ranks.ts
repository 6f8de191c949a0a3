/** The processes that a process has started for the ranks of a run. */
import { readdirSync, readFileSync } from "node:fs";

/** The process of a rank; throws when there is none. */
export function processOfRank(parent: number, rank: number): number {
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      const [, parentOf] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (Number(parentOf) !== parent) continue;
      const variables = readFileSync(`/proc/${name}/environ`, "latin1").split("\0");
      if (variables.includes(`RANK=${rank}`)) return Number(name);
    } catch {
      // It has ended meanwhile.
    }
  }
  throw new Error(`process ${parent} has no process of rank ${rank}`);
}
