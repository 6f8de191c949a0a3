/** `mobalab serve` as a person or a script starts and ends it. */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Overview } from "../../src/server/api.ts";
import { makeRun, makeStudy } from "../server/made.ts";
import { mobalab, started } from "./run-cli.ts";

const folder = mkdtempSync(join(tmpdir(), "mobalab-serve-cli-"));
beforeAll(() => {
  makeStudy(join(folder, "one"));
  makeRun(join(folder, "one"), "r", 3);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("mobalab serve", () => {
  it.concurrent.each(["SIGINT", "SIGTERM"] as const)(
    "prints one line in a pipe, serves, and ends on %s",
    async (signal) => {
      const { line, child, ended } = await started(["serve", folder, "--port", "0"]);
      expect(line).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
      const { studies } = (await (await fetch(`${line}api/studies`)).json()) as Overview;
      expect(studies).toMatchObject([{ id: "one", runs: [{ id: "r" }] }]);
      // Also while a page listens.
      const listening = await fetch(`${line}api/events`);
      child.kill(signal);
      expect(await ended).toEqual({ code: 0, stdout: `${line}\n`, stderr: "" });
      await listening.body!.cancel().catch(() => {});
    },
  );

  it.concurrent("prints JSON for machines", async () => {
    const { line, child, ended } = await started(["serve", folder, "--port", "0", "--json"]);
    const { url } = JSON.parse(line);
    expect((await fetch(`${url}api/studies`)).status).toBe(200);
    child.kill("SIGTERM");
    expect((await ended).code).toBe(0);
  });

  it.concurrent("says in a sentence what is wrong, and exits with 2", async () => {
    const taken = createServer();
    const port = await new Promise<number>((resolve) => {
      taken.listen(0, "127.0.0.1", () => resolve((taken.address() as { port: number }).port));
    });
    const cases: [args: string[], says: RegExp][] = [
      [["nowhere"], /nowhere: there is no such folder; mobalab study quick --out nowhere makes one/],
      [["one/runs/r"], /one\/runs\/r holds no study.*mobalab study quick makes one/],
      [["one/study.json"], /one\/study\.json is no folder/],
      [
        ["one", "--port", String(port)],
        new RegExp(`port ${port} of 127.0.0.1 is in use: give another --port`),
      ],
      [["one", "--port", "65536"], /'65536'.*from 0 to 65535/],
      [["one", "--host", "192.0.2.1"], /cannot listen on 192\.0\.2\.1/],
      [["one", "--token", "short"], /--token: expected 16 to 200/],
      [[], /studies: there is no such folder/],
    ];
    for (const [args, says] of cases) {
      const { code, stdout, stderr } = await mobalab(["serve", ...args], folder);
      expect(stderr).toMatch(says);
      expect(stderr).not.toMatch(/\n\s+at /);
      expect(stdout).toBe("");
      expect(code).toBe(2);
    }
    taken.close();
  });
});
