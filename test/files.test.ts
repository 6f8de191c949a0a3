import { execFileSync } from "node:child_process";
import {
  closeSync,
  constants,
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { inFolder, makeFolder, withParents, writeWhole } from "../src/files.ts";

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

it("what fails takes back the folders it made, but nothing that others put beside it meanwhile", () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-files-"));
  const at = (...names: string[]) => join(folder, ...names);
  const fail = () => {
    throw new Error("no luck");
  };
  try {
    for (const to of [inFolder, withParents]) {
      expect(() => to(at("a", "b", "c"), fail)).toThrow("no luck");
      expect(readdirSync(folder)).toEqual([]);
      const beside = () => {
        writeFileSync(at("a", "theirs"), "");
        fail();
      };
      expect(() => to(at("a", "b", "c"), beside)).toThrow("no luck");
      expect(readdirSync(at("a"))).toEqual(["theirs"]);
      rmSync(at("a"), { recursive: true });
    }
    const sibling = () => {
      writeFileSync(at("new", "theirs"), "");
      fail();
    };
    expect(() => withParents(at("new", "file"), sibling)).toThrow("no luck");
    expect(readdirSync(at("new"))).toEqual(["theirs"]);
    expect(() => inFolder(at("new"), fail)).toThrow("no luck");
    expect(readdirSync(at("new"))).toEqual(["theirs"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it("a link stays and its file is replaced; a pipe is written to and stays", () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab-files-"));
  const at = (name: string) => join(folder, name);
  try {
    writeFileSync(at("file"), "old");
    symlinkSync("file", at("link"));
    writeWhole(at("link"), "new");
    expect(readFileSync(at("file"), "utf8")).toBe("new");
    expect(lstatSync(at("link")).isSymbolicLink()).toBe(true);

    // To root, a rename would replace /dev/null as well.
    execFileSync("mkfifo", [at("pipe")]);
    symlinkSync("pipe", at("to pipe"));
    const reader = openSync(at("pipe"), constants.O_RDONLY | constants.O_NONBLOCK);
    const got = Buffer.alloc(8);
    for (const name of ["pipe", "to pipe"]) {
      writeWhole(at(name), name);
      expect(got.toString("utf8", 0, readSync(reader, got))).toBe(name);
    }
    closeSync(reader);
    expect(lstatSync(at("pipe")).isFIFO()).toBe(true);
    expect(readdirSync(folder).sort()).toEqual(["file", "link", "pipe", "to pipe"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
