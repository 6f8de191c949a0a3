/** The dashboard's built files (dist/web), listed once: what is not in the list is not served. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** Made by `npm run build:web`. */
const FOLDER = fileURLToPath(new URL("../../dist/web", import.meta.url));

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".woff2": "font/woff2",
};

export interface Asset {
  readonly type: string;
  readonly etag: string;
  readonly content: Uint8Array<ArrayBuffer>;
  /** Its name changes with its content. */
  readonly immutable: boolean;
}

/** By path of the address (`/`, `/assets/...`). Empty when the dashboard was not built. */
export function readAssets(folder = FOLDER): Map<string, Asset> {
  const assets = new Map<string, Asset>();
  if (!existsSync(folder)) return assets;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const type = TYPES[extname(entry.name)];
    if (!entry.isFile() || type === undefined) continue;
    const file = join(entry.parentPath, entry.name);
    const name = relative(folder, file).split(sep).join("/");
    // For frozen reports only.
    if (name === "frozen.html") continue;
    const content = new Uint8Array(readFileSync(file));
    const etag = `"${createHash("sha256").update(content).digest("base64url").slice(0, 22)}"`;
    const immutable = name.startsWith("assets/") && /-[\w-]{8}\.\w+$/.test(name);
    assets.set(name === "index.html" ? "/" : `/${name}`, { type, etag, content, immutable });
  }
  return assets;
}

/** The page that frozen reports are made of; null when the dashboard was not built. */
export function readFrozenPage(folder = FOLDER): string | null {
  const file = join(folder, "frozen.html");
  return existsSync(file) ? readFileSync(file, "utf8") : null;
}
