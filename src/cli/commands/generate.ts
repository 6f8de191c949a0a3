/** `mobalab generate`: text from a trained model, token by token. */
import { Command } from "commander";
import { IncrementalDecoder } from "../../data/index.ts";
import { InputError } from "../../errors.ts";
import { generate } from "../../model/generate.ts";
import { findModel, loadModel } from "../../train/load.ts";
import { openBackend } from "../backend.ts";
import {
  aboveZeroTo,
  deviceOption,
  jsonOption,
  numberFrom,
  text,
  threadsOption,
  wholeNumber,
} from "../options.ts";

interface Options {
  prompt: string;
  tokens: number;
  temperature: number;
  topK?: number;
  topP?: number;
  seed: number;
  threads: number;
  device: string;
  json?: boolean;
}

export function generateCommand(): Command {
  return new Command("generate")
    .description("sample text from a run's checkpoint or a Hugging Face Llama folder")
    .argument("<model>", "a run's folder, or a folder with config.json and model.safetensors")
    .option("--prompt <text>", "what the text starts with", text, "The ")
    .option("--tokens <n>", "at most so many new tokens", wholeNumber(1), 256)
    .option("--temperature <t>", "0 takes the likeliest token every time", numberFrom(0, 100), 0.8)
    .option("--top-k <n>", "only the n likeliest tokens", wholeNumber(1))
    .option("--top-p <p>", "only the likeliest tokens that together reach p", aboveZeroTo(1))
    .option("--seed <n>", "the same seed gives the same text", wholeNumber(0), 1)
    .addOption(threadsOption())
    .addOption(deviceOption())
    .addOption(jsonOption())
    .addHelpText(
      "after",
      '\nExample:\n  mobalab generate studies/quick/runs/d6_full_s1 --prompt "Fellow citizens"',
    )
    .action(run);
}

function run(path: string, options: Options): void {
  const trained = findModel(path);
  const { tokenizer } = trained;
  if (!tokenizer) throw new InputError(`${path} has no tokenizer: its text was token ids of an unknown one`);
  const backend = openBackend(options.device, options.threads);
  try {
    const model = loadModel(backend, trained.folder, { tokens: 1, maxDocuments: 1 });
    const decoder = new IncrementalDecoder(tokenizer);
    const prompt = tokenizer.encode(options.prompt);
    const tokens: number[] = [];
    let answer = "";
    const put = (piece: string) => {
      answer += piece;
      if (!options.json) process.stdout.write(piece);
    };
    for (const token of generate(model, prompt, {
      context: trained.folder.context,
      maxTokens: options.tokens,
      temperature: options.temperature,
      topK: options.topK,
      topP: options.topP,
      seed: options.seed,
    })) {
      // A prompt that is refused is not repeated.
      if (tokens.length === 0 && !options.json) process.stdout.write(options.prompt);
      tokens.push(token);
      // Embeddings padded beyond the tokenizer have ids that no text belongs to.
      if (token < tokenizer.vocabulary) put(decoder.push(token));
    }
    put(decoder.end());
    process.stdout.write(
      options.json ? `${JSON.stringify({ prompt: options.prompt, text: answer, tokens })}\n` : "\n",
    );
  } finally {
    backend.close();
  }
}
