/**
 * A dataset packed for a machine that takes little per transfer, and unpacked there: its tokens through xz (about 2.9
 * bits per token of the kernel corpus at a vocabulary of 8,192), cut into parts. Plain Node, no build.
 *
 *   node bench/pack-corpus.mjs pack <dataset> <folder> <MiB of the first part>[,<MiB of the others>]
 *   node bench/pack-corpus.mjs unpack <folder> <dataset>
 *
 * Packing takes ten minutes and more, and 6 GB of memory. Unpacking needs xz or python3 and takes seconds; `mobalab data info
 * <dataset>` then checks every token against the checksums in dataset.json.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  copyFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";

const HEADER_BYTES = 1024;
const SHARDS = ["train.bin", "heldout.bin"];
const SMALL = ["dataset.json", "tokenizer.json"];
/** Ids are pairs of bytes. Text in place of tokens, with the settings for text, makes 4 % more. */
const XZ = ["-c", "--threads=1", "--lzma2=preset=9e,dict=512MiB,lc=0,lp=1,pb=1"];

/** A dataset of bytes has no tokenizer file. */
function copySmall(from, to) {
  for (const name of SMALL.filter((name) => existsSync(join(from, name)))) {
    copyFileSync(join(from, name), join(to, name));
  }
}

async function pack(dataset, folder, sizes) {
  const { vocabulary } = JSON.parse(readFileSync(join(dataset, "dataset.json"), "utf8"));
  if (vocabulary > 65_536)
    throw new Error(`${dataset} has a vocabulary of ${vocabulary}, expected 65536 at most`);
  if (existsSync(folder)) throw new Error(`${folder} exists already`);
  mkdirSync(folder, { recursive: true });
  copySmall(dataset, folder);
  const xz = spawn("xz", XZ, { stdio: ["pipe", "pipe", "inherit"] });
  const parts = cut(xz.stdout, folder, sizes);
  await pipeline(async function* () {
    for (const name of SHARDS) {
      yield* createReadStream(join(dataset, name), { start: HEADER_BYTES, highWaterMark: 1 << 20 });
    }
  }, xz.stdin);
  for (const { name, bytes } of await parts) console.log(`${name}  ${(bytes / 2 ** 20).toFixed(1)} MiB`);
}

async function cut(stream, folder, [first, others = first]) {
  const parts = [];
  const open = () => {
    const name = `part-${String(parts.length + 1).padStart(2, "0")}`;
    parts.push({ name, bytes: 0, file: openSync(join(folder, name), "w") });
    return parts.at(-1);
  };
  let part = open();
  for await (let chunk of stream) {
    while (chunk.length > 0) {
      const room = (parts.length === 1 ? first : others) * 2 ** 20 - part.bytes;
      if (room === 0) {
        part = open();
        continue;
      }
      const piece = chunk.subarray(0, room);
      for (let done = 0; done < piece.length; ) done += writeSync(part.file, piece, done);
      part.bytes += piece.length;
      chunk = chunk.subarray(piece.length);
    }
  }
  return parts;
}

const PYTHON =
  "import lzma,sys,shutil; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer, 1 << 22)";

async function unpack(folder, dataset) {
  if (existsSync(dataset)) throw new Error(`${dataset} exists already`);
  const hasXz = spawnSync("xz", ["--version"]).status === 0;
  const [command, args] = hasXz ? ["xz", ["-dc"]] : ["python3", ["-c", PYTHON]];
  const tool = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const parts = readdirSync(folder)
    .filter((name) => name.startsWith("part-"))
    .sort();
  const feeding = pipeline(async function* () {
    for (const name of parts) yield* createReadStream(join(folder, name));
  }, tool.stdin);
  const { files } = JSON.parse(readFileSync(join(folder, "dataset.json"), "utf8"));
  const aside = `${dataset}.tmp`;
  rmSync(aside, { recursive: true, force: true });
  mkdirSync(aside, { recursive: true });
  copySmall(folder, aside);
  const shards = [files.train, files.heldOut].map(({ tokens }, i) => {
    const file = openSync(join(aside, SHARDS[i]), "w");
    const header = new Int32Array(256);
    header.set([20240520, 1, tokens]);
    writeSync(file, new Uint8Array(header.buffer));
    return { file, left: 2 * tokens };
  });
  for await (const chunk of tool.stdout) {
    let ids = chunk;
    for (const shard of shards) {
      const piece = ids.subarray(0, shard.left);
      for (let done = 0; done < piece.length; ) done += writeSync(shard.file, piece, done);
      shard.left -= piece.length;
      ids = ids.subarray(piece.length);
    }
  }
  await feeding;
  const missing = shards.reduce((sum, { left }) => sum + left, 0);
  if (missing > 0) throw new Error(`${folder} lacks parts: ${missing / 2} tokens are missing`);
  renameSync(aside, dataset);
}

const [verb, from, to, sizes] = process.argv.slice(2);
if (verb === "pack" && sizes) await pack(from, to, sizes.split(",").map(Number));
else if (verb === "unpack" && to) await unpack(from, to);
else throw new Error("expected: pack <dataset> <folder> <MiB>[,<MiB>], or unpack <folder> <dataset>");
