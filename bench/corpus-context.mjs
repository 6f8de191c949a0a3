/**
 * How much a corpus offers to a reader of long context: the loss of the last T/16 tokens of held-out windows with T/16,
 * T/8 ... T tokens of the window kept (as `truncated.json` of a run), for a predictor that needs no long training.
 * Plain Node, after `npm run build`; under five minutes and 3 GB for 260 M tokens, on one core.
 *
 *   node bench/corpus-context.mjs <dataset> [--context 16384] [--runs <run folder>,...] [--out <file.json>]
 *
 * The predictor mixes relative frequencies of the next token, given the last k tokens,
 * - in the training documents (k = 0 ... 6), and
 * - in each length of context kept (k = 0, 1, 2, 3, 4, 6, 9, 14), all of its own earlier occurrences.
 * The weights are a softmax of learned tables, indexed by how often, how regularly and how far back the k tokens occurred,
 * by the longest match and by the last token. They are learned for each length by itself, on windows of training documents
 * whose directories are not counted. Control: what a length adds to the one before is taken out of another held-out
 * document (and likewise when the weights are learned). Direct figures, without weights: where the nearest earlier
 * occurrence of the last 3 tokens with the right next token lies, and how often the longest match (3 tokens and more, the
 * nearest of the longest) is continued right. Weaker: the same with a 100th and a 10th of the training documents counted.
 * `--runs`: the same changes for trained models, from their `truncated.json`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { openDataset, permutation } from "../dist/data/index.js";
import { hashName } from "../dist/data/random.js";
import { readShard } from "../dist/data/shards.js";
import { overDocuments } from "../dist/fit/jackknife.js";
import { spreadWindows } from "../dist/train/evaluate.js";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    context: { type: "string", default: "16384" },
    runs: { type: "string" },
    out: { type: "string" },
  },
});
const T = Number(values.context);
if (positionals.length !== 1 || !(Number.isInteger(T / 16) && T > 0)) {
  console.error(
    "usage: node bench/corpus-context.mjs <dataset> [--context <16, 32 ...>] [--runs <run>,...] [--out <json>]",
  );
  process.exit(2);
}
/** Predicted tokens of a window. */
const PREDICTED = T / 16;
/** Within the window, ascending. */
const LENGTHS = [1, 2, 4, 8, 16].map((parts) => parts * PREDICTED);
/** For windows with as much of their document before them. */
const LONGER = [...LENGTHS, 2 * T, 4 * T];
/** As a run measures it. */
const RUN_WINDOWS = 32;
/** Longest history in the training documents, tokens. */
const BASE = 6;
/** Histories in the context kept. */
const CACHE = [0, 1, 2, 3, 4, 6, 9, 14];
const LONGEST = CACHE.at(-1);
/** Of the training tokens: whole directories, none of them larger than `TUNED_MOST`, for the weights. */
const TUNED = 0.05;
const TUNED_MOST = 0.01;
/** One of as many training documents is counted; in the end all. */
const STRIDES = [100, 10, 1];
const EPOCHS = 3;
const SEED = 1;

const clock = performance.now();
const seconds = () => ((performance.now() - clock) / 1000).toFixed(0).padStart(4);
const say = (words) => console.error(`${seconds()} s  ${words}`);

// Windows: the tokens of a document and where the last of the predicted tokens stands in it.

function documentsOf(tokens, infos) {
  let start = 0;
  return infos.map(({ name, tokens: length }) => {
    const document = { name, group: groupOf(name), tokens: tokens.subarray(start, start + length) };
    start += length;
    return document;
  });
}

/** A directory of the second level, of the third below drivers. */
function groupOf(name) {
  const parts = name.replace(/#\d+$/, "").split("/");
  return parts.slice(0, parts[0] === "drivers" ? 3 : 2).join("/");
}

function windowsOf(documents) {
  return documents.flatMap((document) => {
    const count = Math.floor((document.tokens.length - 1) / T);
    return Array.from({ length: count }, (_, w) => ({ document, end: (w + 1) * T }));
  });
}

/** Each window's tokens at most `length` before its end, and those it predicts. */
const textOf = ({ document, end }, length) => document.tokens.subarray(end - length, end + 1);

/** What lies `near` tokens before the end and more comes out of a window of another group. */
function withForeign(windows, near, length) {
  return windows.map((window, i) => {
    let other = windows[(i + (windows.length >> 1)) % windows.length];
    for (let j = 1; other.document.group === window.document.group; j++)
      other = windows[(i + (windows.length >> 1) + j) % windows.length];
    const tokens = textOf(window, length).slice();
    tokens.set(textOf(other, length).subarray(0, length - near));
    return { document: { ...window.document, tokens }, end: length };
  });
}

// Counts in the training documents, of those token sequences alone that end before or with a predicted token.

/** An open hash table of sequences: check, count, the last next token, changes of the next token. */
class Counts {
  #mask;
  #table;
  #filter = new Uint32Array(1 << 21);
  #used = 0;
  tokens = 0;
  /** Of each token. */
  single;
  constructor(vocabulary, log2 = 24) {
    this.#mask = 2 ** log2 - 1;
    this.#table = new Int32Array(4 * 2 ** log2);
    this.single = new Float64Array(vocabulary);
  }
  #slot(place, check) {
    let slot = (place & this.#mask) << 2;
    while (this.#table[slot] !== 0 && this.#table[slot] !== check)
      slot = (slot + 4) & ((this.#mask << 2) | 3);
    return slot;
  }
  /** Calls `take` with the slot of each sequence that ends at `at` (1 ... `most` tokens), while it is in the table. */
  #walk(tokens, at, most, take) {
    let place = 0x2545f491;
    let check = 0x1b873593;
    for (let k = 1; k <= most && at - k + 1 >= 0; k++) {
      const token = tokens[at - k + 1] + 1;
      place = Math.imul(place ^ token, 0x9e3779b1);
      place ^= place >>> 15;
      check = Math.imul(check + token, 0x85ebca6b);
      check ^= check >>> 13;
      if (!take(k, place, check | 1)) return;
    }
  }
  want(tokens, at, most) {
    this.#walk(tokens, at, most, (_, place, check) => {
      const slot = this.#slot(place, check);
      if (this.#table[slot] === 0) {
        this.#table[slot] = check;
        if (++this.#used > 0.7 * this.#mask) throw new Error("too many sequences for the table of counts");
      }
      const bit = place >>> 6;
      this.#filter[bit >>> 5] |= 1 << (bit & 31);
      return true;
    });
  }
  /** The inner loop, `#walk` written out. */
  add(tokens) {
    const table = this.#table;
    const filter = this.#filter;
    const mask = this.#mask;
    const wrap = (mask << 2) | 3;
    const last = tokens.length - 1;
    this.tokens += tokens.length;
    for (let at = 0; at <= last; at++) {
      this.single[tokens[at]]++;
      const next = at < last ? tokens[at + 1] + 1 : 0;
      let place = 0x2545f491;
      let check = 0x1b873593;
      for (let k = 0; k <= BASE && k <= at; k++) {
        const token = tokens[at - k] + 1;
        place = Math.imul(place ^ token, 0x9e3779b1);
        place ^= place >>> 15;
        const bit = place >>> 6;
        check = Math.imul(check + token, 0x85ebca6b);
        check ^= check >>> 13;
        if ((filter[bit >>> 5] & (1 << (bit & 31))) === 0) break;
        const wanted = check | 1;
        let slot = (place & mask) << 2;
        while (table[slot] !== 0 && table[slot] !== wanted) slot = (slot + 4) & wrap;
        if (table[slot] === 0) break;
        table[slot + 1]++;
        if (table[slot + 2] !== next) {
          table[slot + 2] = next;
          table[slot + 3]++;
        }
      }
    }
  }
  /** Counts and changes of the sequences that end at `at`, into `counts[1 ...]` and `changes[1 ...]`. */
  read(tokens, at, most, counts, changes) {
    counts.fill(0);
    this.#walk(tokens, at, most, (k, place, check) => {
      const slot = this.#slot(place, check);
      counts[k] = this.#table[slot + 1];
      changes[k] = this.#table[slot + 3];
      return counts[k] > 0;
    });
  }
}

const log2Bucket = (count, most) => Math.min(most, 32 - Math.clz32(count)) - 1;

/**
 * What the predictor sees of each predicted token of the windows: for each component (history in the training documents,
 * then history by length of context) the probability it gives and the index of its weight, 0 when it has nothing to say.
 */
function features(windows, lengths, counts, vocabulary) {
  const base = BASE + 1;
  const components = base + lengths.length * CACHE.length;
  const rows = windows.length * PREDICTED;
  const set = {
    windows,
    lengths,
    rows,
    components,
    p: new Float32Array(rows * components),
    bucket: new Uint8Array(rows * components),
    /** Longest match by length, and longest history in the training documents. */
    match: new Uint8Array(rows * lengths.length),
    known: new Uint8Array(rows),
    token: new Uint16Array(rows),
    /** The shortest length with the last 3 tokens before the right one; `lengths.length` when none has them. */
    nearest: new Uint8Array(rows),
    /** By length, whether the longest match is continued right: 0 no match, 1 no, 2 yes. */
    copied: new Uint8Array(rows * lengths.length),
  };
  const longest = lengths.at(-1);
  const previous = new Int32Array(longest + 1);
  const lastOf = new Int32Array(vocabulary);
  const contexts = new Int32Array(BASE + 2);
  const grams = new Int32Array(BASE + 2);
  const changes = new Int32Array(BASE + 2);
  const unused = new Int32Array(BASE + 2);
  const seen = new Int32Array(CACHE.length * vocabulary);
  let stamp = 0;
  const singles = lengths.map(() => new Int32Array(vocabulary));
  const c = new Int32Array(CACHE.length);
  const before = new Int32Array(CACHE.length);
  const right = new Int32Array(CACHE.length);
  const kinds = new Int32Array(CACHE.length);
  const last = new Int32Array(CACHE.length);
  for (const [w, window] of windows.entries()) {
    const text = textOf(window, longest);
    lastOf.fill(-1);
    for (let i = 0; i < text.length; i++) {
      previous[i] = lastOf[text[i]];
      lastOf[text[i]] = i;
    }
    const starts = lengths.map((length) => longest - length);
    for (const [r, single] of singles.entries()) {
      single.fill(0);
      for (let i = starts[r]; i <= longest - PREDICTED; i++) single[text[i]]++;
    }
    for (let n = 0; n < PREDICTED; n++) {
      const row = w * PREDICTED + n;
      const at = row * components;
      const t = longest - PREDICTED + 1 + n;
      const target = text[t];
      set.token[row] = text[t - 1];
      // Training documents.
      counts.read(text, t - 1, BASE, contexts, changes);
      counts.read(text, t, BASE + 1, grams, unused);
      set.p[at] = (counts.single[target] + 1) / (counts.tokens + vocabulary);
      set.bucket[at] = 1;
      for (let k = 1; k <= BASE && contexts[k] > 0; k++) {
        set.known[row] = k;
        set.p[at + k] = Math.min(1, grams[k + 1] / contexts[k]);
        const change = changes[k] / contexts[k];
        const regular = changes[k] === 1 ? 0 : change < 0.1 ? 1 : change < 0.3 ? 2 : change < 0.6 ? 3 : 4;
        set.bucket[at + k] = 1 + 5 * log2Bucket(contexts[k], 14) + regular;
      }
      // The context, from the nearest occurrence of the last token to the farthest.
      c.fill(0);
      before.fill(0);
      right.fill(0);
      kinds.fill(0);
      stamp++;
      let length = 0;
      let copied = 0;
      let nearest = lengths.length;
      let j = previous[t - 1];
      for (let r = 0; r < lengths.length; r++) {
        const start = starts[r];
        for (; j >= start; j = previous[j]) {
          let match = 1;
          const most = Math.min(LONGEST, j - start + 1);
          while (match < most && text[j - match] === text[t - 1 - match]) match++;
          const next = text[j + 1];
          if (match > length) {
            length = match;
            if (match >= 3) copied = next === target ? 2 : 1;
          }
          if (match >= 3 && next === target && nearest > r) nearest = r;
          for (let k = 1; k < CACHE.length && CACHE[k] <= match; k++) {
            if (c[k]++ === 0) last[k] = t - 1 - j;
            if (next === target) right[k]++;
            if (seen[k * vocabulary + next] !== stamp) {
              seen[k * vocabulary + next] = stamp;
              kinds[k]++;
            }
          }
        }
        const to = at + base + r * CACHE.length;
        set.p[to] = singles[r][target] / (t - start);
        set.bucket[to] = 1;
        for (let k = 1; k < CACHE.length && c[k] > 0; k++) {
          if (c[k] === before[k]) continue;
          before[k] = c[k];
          const far = last[k] < 32 ? 0 : last[k] < 256 ? 1 : last[k] < 2048 ? 2 : 3;
          set.p[to + k] = right[k] / c[k];
          set.bucket[to + k] = 1 + (log2Bucket(c[k], 6) * 4 + log2Bucket(kinds[k], 4)) * 4 + far;
        }
        const known = length < 5 ? length : length < 7 ? 5 : length < 10 ? 6 : length < 14 ? 7 : 8;
        set.match[row * lengths.length + r] = known;
        set.copied[row * lengths.length + r] = copied;
      }
      set.nearest[row] = nearest;
      for (const single of singles) single[target]++;
    }
  }
  return set;
}

const BUCKETS = 128;
const MATCHES = 9;

/** Weights for one length of context, or (`r` = -1) for no context but the last tokens. */
class Mixture {
  #r;
  #components;
  #byBucket;
  #byMatch;
  #squares;
  #weights;
  #gradient;
  constructor(r, vocabulary) {
    this.#r = r;
    this.#components = BASE + 1 + (r + 1) * CACHE.length;
    this.#byBucket = this.#components * BUCKETS;
    this.#byMatch = MATCHES * (BASE + 1) * this.#components;
    const count = this.#byBucket + this.#byMatch + vocabulary * this.#components;
    this.#weights = new Float64Array(count);
    this.#squares = new Float64Array(count).fill(1e-2);
    this.#gradient = new Float64Array(this.#components);
  }
  /** The loss of one predicted token, nats; `rate` above 0 learns from it (Adagrad). */
  loss(set, row, rate = 0) {
    const r = this.#r;
    const weights = this.#weights;
    const at = row * set.components;
    const match = r < 0 ? 0 : set.match[row * set.lengths.length + r];
    const second = this.#byBucket + (match * (BASE + 1) + set.known[row]) * this.#components;
    const third = this.#byBucket + this.#byMatch + set.token[row] * this.#components;
    // The shortest context holds one token more with each that is predicted.
    const history = r <= 0 ? (row % PREDICTED) + 1 : BASE;
    let sum = 0;
    let p = 0;
    for (let k = 0; k < this.#components; k++) {
      const bucket = set.bucket[at + k];
      if (bucket === 0 || (k <= BASE && k > history)) {
        this.#gradient[k] = 0;
        continue;
      }
      const e = Math.exp(weights[k * BUCKETS + bucket] + weights[second + k] + weights[third + k]);
      this.#gradient[k] = e;
      sum += e;
      p += e * set.p[at + k];
    }
    p /= sum;
    if (rate > 0) {
      for (let k = 0; k < this.#components; k++) {
        const weight = this.#gradient[k] / sum;
        if (weight === 0) continue;
        const step = weight * (set.p[at + k] / p - 1);
        this.#turn(k * BUCKETS + set.bucket[at + k], step, rate);
        this.#turn(second + k, step, rate);
        this.#turn(third + k, step, rate);
      }
    }
    return -Math.log(p);
  }
  #turn(i, step, rate) {
    this.#squares[i] += step * step;
    this.#weights[i] += (rate * step) / Math.sqrt(this.#squares[i]);
  }
  learn(set) {
    for (let epoch = 0; epoch < EPOCHS; epoch++) {
      const rate = 0.2 / 2 ** epoch;
      for (const row of permutation(set.rows, SEED, epoch)) this.loss(set, row, rate);
    }
    return this;
  }
  losses(set) {
    return Float64Array.from({ length: set.rows }, (_, row) => this.loss(set, row));
  }
}

// Figures by document, with intervals over documents.

/** Sums over the predicted tokens of each document, of all windows or of some. */
function byDocument(set, columns, windows = set.windows) {
  const documents = new Map();
  for (const [w, window] of set.windows.entries()) {
    if (!windows.includes(window)) continue;
    const { name } = window.document;
    const sum = documents.get(name) ?? { weight: 0, sums: columns.map(() => 0) };
    documents.set(name, sum);
    sum.weight += PREDICTED;
    for (let row = w * PREDICTED; row < (w + 1) * PREDICTED; row++)
      for (const [i, column] of columns.entries()) sum.sums[i] += column[row];
  }
  return [...documents.values()];
}

/** What `of` makes of the totals (weight, sums), with its 95 % interval. */
function estimate(documents, of) {
  const rows = documents.map(({ weight, sums }) => ({
    weight,
    losses: [1, ...sums.map((sum) => sum / weight)],
  }));
  const { value, interval } = overDocuments(rows, ([weight, ...sums]) => of(weight, sums));
  const digits = (number) => Number(number.toFixed(6));
  return { value: digits(value), interval: interval.map(digits) };
}

/** Losses by length, and each one's change from the one before, a share and nats. */
function changes(documents, lengths) {
  return {
    documents: documents.length,
    predicted_tokens: documents.reduce((sum, { weight }) => sum + weight, 0),
    rows: lengths.map((length, i) => ({
      context: length,
      lm_loss: estimate(documents, (weight, sums) => sums[i] / weight).value,
      ...(i > 0
        ? {
            change: estimate(documents, (_, sums) => sums[i] / sums[i - 1] - 1),
            nats: estimate(documents, (weight, sums) => (sums[i] - sums[i - 1]) / weight),
          }
        : {}),
    })),
  };
}

// All of it.

const [folder] = positionals;
const dataset = openDataset(folder);
const { vocabulary } = dataset;
const train = documentsOf(readShard(join(folder, "train.bin")).tokens, dataset.train);
const heldOut = documentsOf(readShard(join(folder, "heldout.bin")).tokens, dataset.heldOut);
const trainTokens = train.reduce((sum, { tokens }) => sum + tokens.length, 0);

const all = windowsOf(heldOut);
const own = dataset.evaluationWindows(T).windows;
const same = own.every(({ tokens }, i) => textOf(all[i], T).every((token, t) => token === tokens[t]));
if (own.length !== all.length || !same) throw new Error("the windows are not those of a run");
const chosen = spreadWindows(all, Math.min(RUN_WINDOWS, Math.ceil(all.length / 4)));

const sizes = new Map();
for (const { group, tokens } of train) sizes.set(group, (sizes.get(group) ?? 0) + tokens.length);
const apart = new Set();
let apartTokens = 0;
for (const [group] of [...sizes].sort(([a], [b]) => hashName(SEED, a) - hashName(SEED, b))) {
  if (apartTokens >= TUNED * trainTokens) break;
  if (sizes.get(group) > TUNED_MOST * trainTokens) continue;
  apart.add(group);
  apartTokens += sizes.get(group);
}
const tuning = windowsOf(train.filter(({ group }) => apart.has(group)));
const rest = train.filter(({ group }) => !apart.has(group));
say(`${tuning.length} windows of ${apart.size} directories for the weights, ${all.length} held out`);

const counts = new Counts(vocabulary);
for (const window of [...all, ...tuning]) {
  const text = textOf(window, T);
  for (let t = T - PREDICTED; t <= T; t++) counts.want(text, t, BASE + 1);
}
say("sequences to count are known");

const sets = (lengths, test, learned) => [
  features(test, lengths, counts, vocabulary),
  features(learned, lengths, counts, vocabulary),
];
const lossesOf = (lengths, test, learned) =>
  lengths.map((length, r) => {
    const losses = new Mixture(r, vocabulary).learn(learned).losses(test);
    say(`context ${length}: ${mean(losses).toFixed(4)}`);
    return losses;
  });
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

let test;
let learned;
let alone;
let losses;
const strengths = STRIDES.map((stride, i) => {
  for (const [d, { tokens }] of rest.entries()) {
    const before = STRIDES.slice(0, i).some((stride) => d % stride === stride - 1);
    if (d % stride === stride - 1 && !before) counts.add(tokens);
  }
  say(`counted on ${counts.tokens} tokens`);
  [test, learned] = sets(LENGTHS, all, tuning);
  say("seen what the contexts hold");
  alone = new Mixture(-1, vocabulary).learn(learned).losses(test);
  say(`training documents alone: ${mean(alone).toFixed(4)}`);
  losses = lossesOf(LENGTHS, test, learned);
  return {
    countedTokens: counts.tokens,
    trainingDocumentsAlone: Number(mean(alone).toFixed(6)),
    ...changes(byDocument(test, losses), LENGTHS),
  };
});

const runWindows = changes(byDocument(test, losses, chosen), LENGTHS);
const allWindows = strengths.at(-1);
const weaker = strengths.slice(0, -1);

/** Of the predicted tokens, those that the training documents make less likely than 1/2. */
const hard = Float64Array.from(alone, (loss) => Number(loss > Math.LN2));
/** Shares of the predicted tokens of all windows, and of the hard ones, for the length at `r`. */
function directOf(set, r) {
  const is = (of) => hard.map((_, row) => Number(of(row)));
  const copied = (row, r) => set.copied[row * set.lengths.length + r];
  const columns = [
    is((row) => set.nearest[row] === r),
    is((row) => copied(row, r) > 0),
    is((row) => copied(row, r) === 2),
    is((row) => r > 0 && copied(row, r) === 2 && copied(row, r - 1) !== 2),
    is((row) => r > 0 && copied(row, r) !== 2 && copied(row, r - 1) === 2),
  ];
  const ofHard = columns.map((column) => column.map((one, row) => one * hard[row]));
  const documents = byDocument(set, [...columns, ...ofHard, hard]);
  const shares = (first, whole) => {
    const share = (of) => estimate(documents, (weight, sums) => of(sums) / whole(weight, sums));
    return {
      nearestRight: share((sums) => sums[first]),
      matched: share((sums) => sums[first + 1]),
      matchRight: share((sums) => sums[first + 2]),
      ...(r > 0
        ? {
            newlyRight: share((sums) => sums[first + 3]),
            newlyWrong: share((sums) => sums[first + 4]),
            net: share((sums) => sums[first + 3] - sums[first + 4]),
          }
        : {}),
    };
  };
  return {
    all: shares(0, (weight) => weight),
    hard: shares(columns.length, (_, sums) => sums[2 * columns.length]),
  };
}
const direct = LENGTHS.map((context, r) => ({ context, ...directOf(test, r) }));

const control = LENGTHS.slice(1).map((length, i) => {
  const near = LENGTHS[i];
  const kept = LENGTHS.slice(0, i + 2);
  const [foreign, foreignLearned] = sets(
    kept,
    withForeign(all, near, length),
    withForeign(tuning, near, length),
  );
  const shuffled = new Mixture(i + 1, vocabulary).learn(foreignLearned).losses(foreign);
  const documents = byDocument(test, [losses[i], shuffled]);
  say(`from ${near} to ${length} out of another document`);
  return {
    context: length,
    change: estimate(documents, (_, sums) => sums[1] / sums[0] - 1),
    nats: estimate(documents, (weight, sums) => (sums[1] - sums[0]) / weight),
    direct: directOf(foreign, i + 1),
  };
});

const within = (windows) => windows.filter(({ end }) => end >= LONGER.at(-1));
const [testLonger, learnedLonger] = sets(LONGER, within(all), within(tuning));
const longer = changes(byDocument(testLonger, lossesOf(LONGER, testLonger, learnedLonger)), LONGER);

const models = (values.runs?.split(",") ?? []).map((run) => {
  const { contexts, documents } = JSON.parse(readFileSync(join(run, "truncated.json"), "utf8"));
  const names = [...new Set(chosen.map(({ document }) => document.name))];
  if (contexts.join() !== LENGTHS.join() || documents.map(({ document }) => document).join() !== names.join())
    throw new Error(`${run} is measured on other windows`);
  const weighted = documents.map(({ predicted_tokens: weight, lm_loss }) => ({
    weight,
    sums: lm_loss.map((loss) => weight * loss),
  }));
  return { run: basename(run), ...changes(weighted, contexts) };
});

const percent = ({ value, interval: [low, high] }, digits = 2) =>
  `${(100 * value).toFixed(digits)} (${(100 * low).toFixed(digits)} to ${(100 * high).toFixed(digits)})`;
const table = (title, { documents, predicted_tokens, rows }) => {
  console.log(`${title}: ${documents} documents, ${predicted_tokens} predicted tokens`);
  for (const { context, lm_loss, change } of rows)
    console.log(
      `${String(context).padStart(8)}  ${lm_loss.toFixed(4)}  ${change ? `${percent(change)} %` : ""}`,
    );
};
table("windows of a run", runWindows);
for (const one of strengths) table(`all windows, counted on ${one.countedTokens} tokens`, one);
table(`windows with ${LONGER.at(-1)} tokens of their document`, longer);
const sharesTable = (context, { all, hard }) => {
  for (const [of, shares] of Object.entries({ all, hard })) {
    const words = Object.entries(shares).map(([name, share]) => `${name} ${percent(share)}`);
    console.log(`${String(context).padStart(8)}  ${of}: ${words.join(", ")}`);
  }
};
console.log(
  `% of all predicted tokens and of the ${(100 * mean(hard)).toFixed(1)} % that training documents make less likely than 1/2`,
);
for (const { context, ...shares } of direct) sharesTable(context, shares);
console.log("what is added taken out of another document");
for (const { context, change, direct } of control) {
  console.log(`${String(context).padStart(8)}  ${percent(change)} %`);
  sharesTable(context, direct);
}
for (const { run, ...figures } of models) table(run, figures);

if (values.out) {
  const record = {
    benchmark: "corpus-context",
    cpu: cpus()[0].model.trim(),
    cores: cpus().length,
    node: process.version,
    date: new Date().toISOString().slice(0, 10),
    dataset: {
      tokenizer: dataset.tokenizerName,
      vocabulary,
      trainTokens,
      heldOutTokens: heldOut.reduce((sum, { tokens }) => sum + tokens.length, 0),
    },
    window: T,
    predicted: PREDICTED,
    countedDocuments: rest.length,
    weightsWindows: tuning.length,
    weightsDirectories: [...apart].sort(),
    runWindows,
    allWindows,
    weaker,
    longer,
    control,
    hardShare: Number(mean(hard).toFixed(6)),
    direct,
    models,
    seconds: Math.round((performance.now() - clock) / 1000),
  };
  const text = JSON.stringify(record, null, 2).replace(/\[\s+([-\d.e]+),\s+([-\d.e]+)\s+\]/g, "[$1, $2]");
  writeFileSync(values.out, `${text}\n`);
}
