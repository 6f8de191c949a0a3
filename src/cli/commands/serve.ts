/** `mobalab serve`: a live view of studies in the browser. */
import { Command } from "commander";
import { DEFAULT_PORT, serve } from "../../server/serve.ts";
import { jsonOption, text, wholeNumber } from "../options.ts";

interface Options {
  host?: string;
  port?: number;
  token?: string;
  json?: boolean;
}

export function serveCommand(): Command {
  return new Command("serve")
    .description("show studies in the browser, live while they train")
    .argument("[folder...]", "study folders, or folders of them (default: studies)")
    .option(
      "--port <n>",
      `0 for any free one (default: ${DEFAULT_PORT} or the next free one)`,
      wholeNumber(0, 65535),
    )
    .option("--host <address>", "other than loopback only with a token (default: 127.0.0.1)", text)
    .option("--token <text>", "ask for it; made up where one is needed", text)
    .addOption(jsonOption())
    .addHelpText("after", "\nExample:\n  mobalab serve studies/quick --port 8080")
    .action(run);
}

async function run(folders: string[], { json, ...options }: Options): Promise<void> {
  const serving = await serve({ folders: folders.length > 0 ? folders : ["studies"], ...options });
  const { url, studies } = serving;
  if (json) process.stdout.write(`${JSON.stringify({ url })}\n`);
  else if (!process.stdout.isTTY) process.stdout.write(`${url}\n`);
  else {
    const what = studies === 1 ? "1 study" : `${studies} studies`;
    process.stdout.write(`${what} at ${url}\nCtrl-C ends it\n`);
  }
  await new Promise<void>((resolve) => {
    process.once("SIGINT", resolve);
    process.once("SIGTERM", resolve);
  });
  await serving.close();
}
