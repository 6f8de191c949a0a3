import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { makeFolder } from "../src/files.ts";

/** A place on a file system that nobody can write to, where this machine has one. */
const mounts = existsSync("/proc/mounts") ? readFileSync("/proc/mounts", "utf8").split("\n") : [];
const readOnly = mounts
  .map((line) => line.split(" "))
  .find(([, , , options]) => /^ro(,|$)/.test(options))?.[1];

it.skipIf(!readOnly)("a folder on a read-only file system: the reason is said", () => {
  expect(() => makeFolder(join(readOnly!, "a", "b"))).toThrow(
    /cannot write .*b: its file system is read-only/,
  );
});

it("a folder: the first one missing is told, a file in its way is named", () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-files-"));
  try {
    expect(makeFolder(join(folder, "a", "b"))).toBe(join(folder, "a"));
    expect(makeFolder(join(folder, "a", "b"))).toBeUndefined();
    writeFileSync(join(folder, "file"), "");
    expect(() => makeFolder(join(folder, "file"))).toThrow(
      /cannot write .*file: there is a file of that name/,
    );
    expect(() => makeFolder(join(folder, "file", "c"))).toThrow(/a part of its path is a file/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
