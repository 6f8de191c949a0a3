/** Debian's Chromium for the tests, and the dashboard as it was built. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/**
 * Where Chromium is, or null. With `MOBALAB_CHROMIUM` set, as in the check of a check-in, it has to be there: `required`, or
 * the path of one.
 */
export function findChromium(): string | null {
  const wanted = process.env.MOBALAB_CHROMIUM;
  const places = wanted === undefined || wanted === "required" ? PLACES : [wanted];
  const found = places.find((path) => existsSync(path));
  if (found !== undefined) return found;
  if (wanted !== undefined) throw new Error(`no Chromium at ${places.join(", ")}: apt-get install chromium`);
  process.stderr.write("skipped: the dashboard's tests need Chromium (apt-get install chromium)\n");
  return null;
}

export async function openBrowser(path: string): Promise<Browser> {
  const built = join(ROOT, "dist/web/index.html");
  const newest = Math.max(...changed(join(ROOT, "web")));
  if (!existsSync(built) || statSync(built).mtimeMs < newest) {
    throw new Error("dist/web is missing or older than web/: npm run build:web");
  }
  // Containers rarely let Chromium make its own sandbox; the pages are ours.
  return chromium.launch({ executablePath: path, args: ["--no-sandbox", "--enable-precise-memory-info"] });
}

function changed(folder: string): number[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs);
}

/** What the page complains about: errors of scripts, refusals by the policy, failed requests. */
export function complaints(page: Page): string[] {
  const found: string[] = [];
  page.on("pageerror", (error) => found.push(String(error.stack)));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") found.push(message.text());
  });
  return found;
}

/** Serious and critical findings of axe on the page as it stands. */
export async function seriousFindings(page: Page): Promise<string[]> {
  // Through the debugger, so that the page's policy stays as it is.
  const client = await page.context().newCDPSession(page);
  const { result, exceptionDetails } = await client.send("Runtime.evaluate", {
    expression: `(async () => {
      ${axe.source};
      return JSON.stringify(await axe.run(document, { resultTypes: ["violations"] }));
    })()`,
    awaitPromise: true,
    returnByValue: true,
  });
  await client.detach();
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  const { violations } = JSON.parse(result.value) as {
    violations: { id: string; impact: string; help: string; nodes: { html: string }[] }[];
  };
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}\n  ${nodes.map((node) => node.html).join("\n  ")}`);
}
