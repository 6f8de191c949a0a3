/** The dashboard is built wherever the checkout lies: in a folder with spaces and letters beyond ASCII too. */
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadConfigFromFile } from "vite";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

it("finds the page's stand-in for Node", async () => {
  const folder = mkdtempSync(join(tmpdir(), "mobalab \u00e9 %20 "));
  try {
    for (const file of ["package.json", "vite.config.ts", join("web", "no-node.ts")]) {
      cpSync(join(root, file), join(folder, file));
    }
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    const command = { command: "build", mode: "production" } as const;
    const loaded = await loadConfigFromFile(command, join(folder, "vite.config.ts"), folder);
    const places = Object.values(loaded!.config.resolve!.alias as Record<string, string>);
    expect(places.length).toBeGreaterThan(0);
    for (const place of places) expect(existsSync(place), place).toBe(true);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
