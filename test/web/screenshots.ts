/**
 * Pictures of the main views of a study folder for the guide.
 *
 *   npm run build:web && npx tsx test/web/screenshots.ts studies/quick docs
 */
import { join } from "node:path";
import { serve } from "../../src/server/serve.ts";
import { findChromium, openBrowser } from "./browser.ts";

const [folder, out] = process.argv.slice(2);
if (folder === undefined || out === undefined) throw new Error("give a study folder and where pictures go");
const server = await serve({ folders: [folder], port: 0 });
const browser = await openBrowser(findChromium()!);
for (const [name, hash, width, colorScheme] of [
  ["dashboard-scaling", "scaling", 1100, "light"],
  ["dashboard-curves", "curves", 1100, "dark"],
  ["dashboard-runs", "runs", 1240, "light"],
  ["dashboard-narrow", "scaling", 360, "dark"],
  ["dashboard-moba", "moba?layer=2&head=2", 1100, "light"],
] as const) {
  const heights: Record<string, number> = {
    "dashboard-narrow": 740,
    "dashboard-runs": 500,
    "dashboard-moba": 1700,
  };
  const height = heights[name] ?? 800;
  const page = await browser.newPage({ viewport: { width, height }, colorScheme });
  await page.goto(`${server.url}#${hash}`);
  await page.locator("h2").waitFor();
  await page.waitForTimeout(1500);
  await page.screenshot({ path: join(out, `${name}.png`) });
  await page.close();
}
await browser.close();
await server.close();
