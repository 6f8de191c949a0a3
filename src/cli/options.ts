/** Parsers of option values; each refuses with the option's name, the value and what is allowed. */
import { availableParallelism } from "node:os";
import { InvalidArgumentError, Option } from "commander";

export function wholeNumber(minimum: number, maximum?: number): (value: string) => number {
  const allowed = maximum === undefined ? `of at least ${minimum}` : `from ${minimum} to ${maximum}`;
  return (value) => {
    const n = Number(value);
    if (!/^\d+$/.test(value) || n < minimum || n > (maximum ?? Number.MAX_SAFE_INTEGER)) {
      throw new InvalidArgumentError(`Expected a whole number ${allowed}.`);
    }
    return n;
  };
}

export function positiveNumber(value: string): number {
  const n = Number(value);
  if (value.trim() === "" || !Number.isFinite(n) || n <= 0) {
    throw new InvalidArgumentError("Expected a number above 0.");
  }
  return n;
}

export function aboveZeroTo(maximum: number): (value: string) => number {
  return (value) => {
    const n = Number(value);
    if (!(n > 0 && n <= maximum))
      throw new InvalidArgumentError(`Expected a number above 0, at most ${maximum}.`);
    return n;
  };
}

export function numberFrom(minimum: number, maximum: number): (value: string) => number {
  return (value) => {
    const n = Number(value);
    if (value.trim() === "" || !(n >= minimum && n <= maximum)) {
      throw new InvalidArgumentError(`Expected a number from ${minimum} to ${maximum}.`);
    }
    return n;
  };
}

/** Seconds, from 90s, 9m or 1.5h. */
export function time(value: string): number {
  const match = /^(\d+(?:\.\d+)?)(s|m|h)$/.exec(value);
  const seconds = Number(match?.[1]) * { s: 1, m: 60, h: 3600 }[(match?.[2] ?? "s") as "s" | "m" | "h"];
  if (!(seconds > 0 && seconds <= MOST.seconds)) {
    throw new InvalidArgumentError("Expected a time such as 90s, 9m or 1.5h.");
  }
  return seconds;
}

export function listOf<T>(parse: (item: string) => T): (value: string) => T[] {
  return (value) => {
    const items = value.split(",").map((item) => item.trim());
    const parsed = items.map(parse);
    if (new Set(parsed).size !== items.length) {
      throw new InvalidArgumentError("Expected a comma-separated list without repeats.");
    }
    return parsed;
  };
}

export function text(value: string): string {
  if (value === "") throw new InvalidArgumentError("Expected a value.");
  return value;
}

/** The most that options of shapes take: far beyond any model, near enough that a plan of them is quick. */
export const MOST = {
  depth: 256,
  headDim: 1024,
  context: 2 ** 24,
  seed: 2 ** 32 - 1,
  threads: 1024,
  seconds: 2e6,
};

export const threadsOption = () =>
  new Option("--threads <n>", "CPU threads")
    .argParser(wholeNumber(1, MOST.threads))
    .default(availableParallelism(), "all cores");

export const jobsOption = () =>
  new Option("--jobs <n>", "threads that read and tokenize (default: all cores)").argParser(
    wholeNumber(1, MOST.threads),
  );

export const deviceOption = () =>
  new Option("--device <name>", "cpu, cuda, cuda:<n>; auto takes CUDA cards when there are any")
    .argParser((value) => {
      if (!/^(auto|cpu|cuda(:\d+)?)$/.test(value))
        throw new InvalidArgumentError("Expected auto, cpu, cuda or cuda:<n>.");
      return value;
    })
    .default("auto");

export const gpusOption = () =>
  new Option("--gpus <n>", "CUDA cards that train a run together, from the one of --device on")
    .argParser(wholeNumber(1, 64))
    .default(1);

export const jsonOption = () => new Option("--json", "print the result as JSON, and nothing else, on stdout");

/** Two numbers, the smaller first, such as 0.02-50; `whole` for whole numbers. */
export function range(expected: string, whole = false): (value: string) => [number, number] {
  return (value) => {
    const match = /^([\d.]+(?:e[+-]?\d+)?)-([\d.]+(?:e[+-]?\d+)?)$/i.exec(value);
    const [low, high] = [Number(match?.[1]), Number(match?.[2])];
    if (!(low < high) || (whole && !(Number.isInteger(low) && Number.isInteger(high)))) {
      throw new InvalidArgumentError(expected);
    }
    return [low, high];
  };
}
