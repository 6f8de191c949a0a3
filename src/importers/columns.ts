/** Which named column of a log holds what: the losses, and the columns of the curves table beside them. */
import { InputError } from "../errors.ts";
import { someOf } from "./text.ts";
import type { Split } from "./types.ts";

/** What a column may hold beside losses, and the names trainers give it, best first. */
const KNOWN = {
  step: [
    "step",
    "global_step",
    "trainer/global_step",
    "train/global_step",
    "iteration",
    "iter",
    "iters",
    "num_updates",
    "update",
    "_step",
  ],
  tokens: [
    "tokens",
    "tokens_seen",
    "num_tokens",
    "total_tokens",
    "num_input_tokens_seen",
    "train/num_input_tokens_seen",
    "consumed_tokens",
    "consumed-tokens",
    "train/tokens",
    "train/tokens_seen",
    "throughput/total_tokens",
    "n_tokens_seen",
  ],
  time_s: [
    "time_s",
    "_runtime",
    "relative time (process)",
    "relative time (wall)",
    "elapsed_s",
    "wall_time_s",
  ],
  tokens_per_second: [
    "tokens_per_second",
    "tokens_per_sec",
    "tokenspersecond",
    "tok/s",
    "train/tokens_per_second",
    "throughput(tps)",
    "throughput/tokens_per_sec",
    "tps",
  ],
  pflops_days: ["pflops_days"],
  pflops_days_attended: ["pflops_days_attended"],
  parameters: ["parameters"],
  predicted_tokens: ["predicted_tokens"],
  bits_per_byte: ["bits_per_byte"],
  position_start: ["position_start"],
  position_end: ["position_end"],
  split: ["split"],
  run: ["run"],
  attention: ["attention"],
  model: ["model"],
  seed: ["seed"],
} as const;

export type Role = keyof typeof KNOWN;
const ROLES = Object.keys(KNOWN) as Role[];
/** Roles that place a row in training. */
const PLACES: readonly Role[] = ["step", "tokens", "pflops_days", "time_s"];

/** The role that a column of this name has by itself. */
export function roleOf(name: string): Role | undefined {
  return ROLES.find((role) => (KNOWN[role] as readonly string[]).includes(name.toLowerCase()));
}

/** `--columns`: the losses' columns and those of other roles, by the user's word. */
export interface WantedColumns {
  readonly losses: readonly string[];
  readonly roles: ReadonlyMap<Role, string>;
}

/** Reads `loss=val_loss,step=iter`; `loss` may come several times. A name that holds a comma stands in double quotes. */
export function parseColumns(text: string): WantedColumns {
  const losses: string[] = [];
  const roles = new Map<Role, string>();
  for (const part of text.match(/(?:"[^"]*"|[^,"])+/g) ?? []) {
    const split = part.indexOf("=");
    const role = part.slice(0, split).trim();
    const column = part
      .slice(split + 1)
      .trim()
      .replaceAll('"', "");
    if (split < 0 || column === "") {
      throw new InputError(
        `--columns has ${JSON.stringify(part)} where role=column should be, such as loss=val_loss`,
      );
    }
    if (role === "loss") losses.push(column);
    else if (!(ROLES as string[]).includes(role)) {
      throw new InputError(`--columns names ${JSON.stringify(role)}; it knows loss, ${ROLES.join(", ")}`);
    } else if (roles.has(role as Role)) {
      throw new InputError(`--columns names ${role} twice; only loss may come several times`);
    } else roles.set(role as Role, column);
  }
  return { losses, roles };
}

/** A column that holds losses: of which split, and of which positions (null: all). */
export interface LossColumn {
  readonly name: string;
  readonly split: Split;
  readonly position_start: number | null;
  readonly position_end: number | null;
}

export interface ChosenColumns {
  readonly losses: readonly LossColumn[];
  readonly roles: ReadonlyMap<Role, string>;
  readonly notes: readonly string[];
}

const EVAL_WORDS = new Set(
  "val valid validation eval evaluation test dev held heldout out holdout".split(" "),
);
const OTHER_WORDS = new Set(
  "loss losses lm train training trainer step epoch avg average mean global ce nll cross entropy crossentropy metrics metric".split(
    " ",
  ),
);
/** `loss_0-2048` is the loss at positions 0 to 2047. */
const BUCKET = /[_/ .]\[?(\d{1,15})[-,](\d{1,15})\)?$/;

/** What a name says of the loss it holds; undefined when it does not read as an LM loss. */
function lossOf(name: string): (LossColumn & { rank: number }) | undefined {
  if (name.length > 200) return undefined;
  const bucket = BUCKET.exec(name);
  const [start, end] = bucket ? [Number(bucket[1]), Number(bucket[2])] : [null, null];
  if (start !== null && end !== null && start >= end) return undefined;
  const words = wordsOf(bucket ? name.slice(0, bucket.index) : name);
  if (!words.every((word) => EVAL_WORDS.has(word) || OTHER_WORDS.has(word))) return undefined;
  const named = words.includes("loss") || words.includes("losses") || words.includes("crossentropy");
  if (!named && !(words.includes("cross") && words.includes("entropy")) && !words.includes("nll"))
    return undefined;
  // Losses of single steps before means over epochs; plain names before long ones.
  const rank =
    (words.includes("epoch") ? 100 : 0) +
    (words.includes("test") ? 50 : 0) +
    (words.includes("lm") ? -20 : 0) +
    words.length;
  return { name, split: splitOf(name), position_start: start, position_end: end, rank };
}

function wordsOf(name: string): string[] {
  return name
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}

function splitOf(name: string): Split {
  return wordsOf(name).some((word) => EVAL_WORDS.has(word)) ? "eval" : "train";
}

/**
 * The columns to read among `names`: those wanted, else by their names; one loss per split and bucket. Throws
 * InputError, which calls the log `source`, when a wanted column is missing or no loss is found.
 */
export function chooseColumns(
  names: readonly string[],
  wanted: WantedColumns,
  source: string,
): ChosenColumns {
  const present = new Set(names);
  const notes: string[] = [];
  for (const name of [...wanted.losses, ...wanted.roles.values()]) {
    if (!present.has(name)) {
      throw new InputError(
        `${source} has no column ${JSON.stringify(name)} (--columns); it has ${someOf(names)}`,
      );
    }
  }
  const lower = new Map<string, string>();
  for (const name of names) if (!lower.has(name.toLowerCase())) lower.set(name.toLowerCase(), name);
  const roles = new Map<Role, string>();
  for (const role of ROLES) {
    const known = KNOWN[role].find((name) => lower.has(name));
    const name = wanted.roles.get(role) ?? (known && lower.get(known));
    if (name !== undefined) roles.set(role, name);
  }
  let losses: LossColumn[];
  if (wanted.losses.length > 0) {
    losses = wanted.losses.map(
      (name) => lossOf(name) ?? { name, split: splitOf(name), position_start: null, position_end: null },
    );
  } else {
    const best = new Map<string, LossColumn & { rank: number }>();
    const passed: string[] = [];
    for (const name of names) {
      const loss = lossOf(name);
      if (!loss) continue;
      const key = `${loss.split} ${loss.position_start} ${loss.position_end}`;
      const rival = best.get(key);
      if (rival) passed.push(loss.rank < rival.rank ? rival.name : name);
      if (!rival || loss.rank < rival.rank) best.set(key, loss);
    }
    losses = [...best.values()];
    if (passed.length > 0) {
      notes.push(
        `${source} also has ${someOf(passed)}, left out beside ${someOf(losses.map((loss) => loss.name))}` +
          " (--columns loss=<name> chooses)",
      );
    }
  }
  if (losses.length === 0) {
    throw new InputError(
      `${source} has no column that reads as a loss; name it with --columns loss=<name>` +
        ` (it has ${someOf(names.filter((name) => ![...roles.values()].includes(name))) || "none"})`,
    );
  }
  return { losses, roles, notes };
}

/** Refuses a log whose rows nothing places in training. */
export function needPlace(chosen: ChosenColumns, names: readonly string[], source: string): void {
  if (PLACES.some((role) => chosen.roles.has(role))) return;
  const losses = chosen.losses.map((loss) => loss.name);
  throw new InputError(
    `${source} has no column of steps or tokens; name it with --columns step=<name>` +
      ` (it has ${someOf(names.filter((name) => !losses.includes(name))) || "none beside the loss"})`,
  );
}
