/**
 * Reading, fitting and drawing a large table: 20 runs in 16 position buckets, 1,000,000 points, with 1,000 resamples of
 * the runs, each command a process of its own on one core. Prints and writes bench/results/fit_<cpu>_<date>.json.
 *
 *   npm run build && npm --prefix bench run fit [-- --points 1000000 --rounds 3 --attended]
 *
 * With --attended the table has a second compute convention, which doubles the laws and the charts; nothing is written.
 */
import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { rounded, writeResult } from "./results.ts";
import { median } from "./timing.ts";

const { values } = parseArgs({
  options: {
    points: { type: "string", default: "1000000" },
    rounds: { type: "string", default: "3" },
    cli: { type: "string", default: "dist/cli/main.js" },
    attended: { type: "boolean", default: false },
  },
});
const [SIZES, BUCKETS, BUCKET] = [10, 16, 2048];
const rows = Math.round(Number(values.points) / (2 * SIZES * BUCKETS));
const folder = mkdtempSync(join(tmpdir(), "mobalab-fit-"));
const table = join(folder, "curves.csv");

/** Two attentions of ten sizes, the loss of each bucket a power law with a ripple of 1 %. */
function writeTable(): void {
  const file = openSync(table, "w");
  const more = values.attended ? ",pflops_days_attended,parameters,time_s,predicted_tokens" : "";
  writeSync(
    file,
    `attention,model,position_start,position_end,pflops_days,lm_loss,seed,run,step,tokens${more}\n`,
  );
  for (const attention of ["full", "moba-b512-k3"]) {
    for (let size = 0; size < SIZES; size++) {
      let text = "";
      for (let i = 1; i <= rows; i++) {
        const budget = (0.05 * 2 ** size * i) / rows;
        const attended = budget * (attention === "full" ? 1.4 : 1.1);
        const added = values.attended
          ? `,${attended.toPrecision(7)},${10_000_000 * 2 ** size},${3 * i},65536`
          : "";
        for (let b = 0; b < BUCKETS; b++) {
          const ripple = 1 + 0.01 * Math.sin(37.1 * i + 3 * b + size + attention.length);
          const loss = 2.2 * budget ** -0.08 * (1 - 0.01 * b) * ripple;
          text +=
            `${attention},m${size},${b * BUCKET},${(b + 1) * BUCKET},${budget.toPrecision(7)},${loss.toFixed(6)},0,` +
            `${attention}-m${size}-s0,${10 * i},${10 * i * 524288}${added}\n`;
        }
      }
      writeSync(file, text);
    }
  }
  closeSync(file);
}

/** Linux pins the process to one core; elsewhere it has what it takes. */
const pinned = spawnSync("taskset", ["-c", "0", "true"]).status === 0;

function measure(args: string[]): { seconds: number; peakMiB: number } {
  const usage = join(folder, "usage");
  // The process notes its own peak as it ends: nothing else on this side could tell.
  const note = `import { writeFileSync } from "node:fs"; process.on("exit", () => writeFileSync(${JSON.stringify(usage)}, String(process.resourceUsage().maxRSS)));`;
  const node = [process.execPath, "--import", `data:text/javascript,${encodeURIComponent(note)}`];
  const [program, ...rest] = [
    ...(pinned ? ["taskset", "-c", "0"] : []),
    ...node,
    resolve(values.cli),
    ...args,
  ];
  const start = performance.now();
  const { status, stderr } = spawnSync(program, rest, { encoding: "utf8" });
  const seconds = (performance.now() - start) / 1000;
  if (status !== 0) throw new Error(`mobalab ${args.join(" ")} failed: ${stderr}`);
  return { seconds, peakMiB: Number(readFileSync(usage, "utf8")) / 1024 };
}

try {
  writeTable();
  const size = statSync(table).size / 2 ** 20;
  console.log(
    `${2 * SIZES * BUCKETS * rows} points, ${size.toFixed(0)} MiB, ${pinned ? "one core" : "all cores"}`,
  );
  const commands = {
    fit: ["fit", table, "--bootstrap", "1000"],
    report: ["report", table, "--out", join(folder, "report")],
  };
  const figures = Object.entries(commands).map(([command, args]) => {
    const runs = Array.from({ length: Number(values.rounds) }, () => measure(args));
    const seconds = median(runs.map((run) => run.seconds));
    const peakMiB = Math.max(...runs.map((run) => run.peakMiB));
    console.log(`${command}: ${seconds.toFixed(2)} s, ${peakMiB.toFixed(0)} MiB at the peak`);
    return { command, seconds: rounded(seconds), peak_mib: rounded(peakMiB) };
  });
  if (!values.attended) {
    writeResult("fit", {
      points: 2 * SIZES * BUCKETS * rows,
      table_mib: rounded(size),
      one_core: pinned,
      figures,
    });
  }
} finally {
  rmSync(folder, { recursive: true });
}
