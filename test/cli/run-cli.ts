/** Runs the command line as a person would, from source, in a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type Ran, ran } from "./ran.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const TSX = import.meta.resolve("tsx");

export function mobalab(args: readonly string[], cwd?: string): Promise<Ran> {
  return start(args, cwd).ended;
}

/** The same, while it runs: from its first line on standard output on. */
export async function started(
  args: readonly string[],
  cwd?: string,
): Promise<{ readonly line: string; readonly child: ChildProcess; readonly ended: Promise<Ran> }> {
  const { child, ended } = start(args, cwd);
  const line = await new Promise<string>((resolve, reject) => {
    let text = "";
    child.stdout!.on("data", (chunk) => {
      text += chunk;
      if (text.includes("\n")) resolve(text.split("\n")[0]);
    });
    ended.then(({ stderr }) => reject(new Error(`it ended before its first line: ${stderr}`)), reject);
  });
  return { line, child, ended };
}

function start(args: readonly string[], cwd?: string): { child: ChildProcess; ended: Promise<Ran> } {
  const child = spawn(process.execPath, ["--import", TSX, MAIN, ...args], {
    cwd,
    stdio: ["ignore", "pipe", "pipe"],
  });
  return { child, ended: ran(child) };
}
