/** A folder for a test file's inputs, gone after its tests. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll } from "vitest";

export function testFolder(): {
  path(name: string): string;
  write(name: string, data: string | Uint8Array): string;
} {
  const root = mkdtempSync(join(tmpdir(), "mobalab-data-"));
  afterAll(() => rmSync(root, { recursive: true, force: true }));
  const path = (name: string) => join(root, name);
  return {
    path,
    write(name, data) {
      mkdirSync(dirname(path(name)), { recursive: true });
      writeFileSync(path(name), data);
      return path(name);
    },
  };
}

/** The message of the error that a promise or function ends with. */
export async function messageOf(work: () => unknown): Promise<string> {
  try {
    await work();
  } catch (error) {
    const { name, message } = error as Error;
    return `${name}: ${message}`;
  }
  return "no error";
}
