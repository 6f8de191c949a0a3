import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { openSource, type SourceOptions } from "../../src/data/sources.ts";
import { messageOf, testFolder } from "./folder.ts";

const folder = testFolder();

/** Documents as [name, text or ids]. */
async function read(paths: string[], options?: SourceOptions): Promise<[string, string | number[]][]> {
  const found: [string, string | number[]][] = [];
  for await (const document of openSource(paths, options).documents()) {
    found.push([
      document.name,
      "text" in document ? Buffer.from(document.text).toString("utf8") : [...document.ids],
    ]);
  }
  return found;
}

/** A shard written from the format's definition, not by the code under test. */
function shard(tokens: number[], width: 2 | 4, change: (header: Int32Array) => void = () => {}): Buffer {
  const header = new Int32Array(256);
  header.set(width === 2 ? [20240520, 1, tokens.length] : [20240801, 7, tokens.length]);
  change(header);
  const body = width === 2 ? Uint16Array.from(tokens) : Uint32Array.from(tokens);
  return Buffer.concat([Buffer.from(header.buffer), Buffer.from(body.buffer)]);
}

// Two row groups, Snappy, dictionary pages, an empty string and a null; and one row group, gzip. Made with hyparquet-writer.
const PARQUET_SNAPPY =
  "UEFSMRUGFW4VXlwVCBUAFQgVABUEFQAAAAMPNYgRAAAAR3LDvMOfZSBhdXMgS8O2bG4KAAAAc2Vjb25kIHJvdzYOAAwAAAAAFQYVJBUoXBUIFQAVCBUAFQQVAAAAAw8QPAEAAAACAAAAAwAAAAQAAAAVBhUiFSZcFQQVAhUEFQAVBBUAAAADAg84CwAAAGxhc3Qg8J+agA0KFQYVFBUYXBUEFQAVBBUAFQQVAAAAAwMIHAUAAAAGAAAAFQQZPEgEcm9vdBUEABUMJQIYBHRleHQlAAAVAiUCGAJpZAAWDBksGSwmCBwVDBkVABkYBHRleHQVAhYIFpgBFogBJgg8NgAoCnNlY29uZCByb3cYAAAZHBUGFQAVAgAAACaQARwVAhkVABkYAmlkFQIWCBZOFlImkAE8NgAoBAQAAAAYBAEAAAAAGRwVBhUAFQIAAAAW5gEWCDbaAQAZLCbiARwVDBkVABkYBHRleHQVAhYEFkwWUCbiATw2AigLbGFzdCDwn5qADQoYC2xhc3Qg8J+agA0KABkcFQYVABUCAAAAJrICHBUCGRUAGRgCaWQVAhYEFj4WQiayAjw2ACgEBgAAABgEBQAAAAAZHBUGFQAVAgAAABaKARYENpIBACgJaHlwYXJxdWV0GSwcAAAcAAAANQEAAFBBUjE=";
const PARQUET_GZIP =
  "UEFSMRUGFZYBFagBXBUMFQAVDBUAFQQVAAAAAz8fiwgAAAAAAAADE2RgYHAvOrzn8PxUhcTSYgXvw9ty8rgYGBiKU5Pz81IUivLLUXkMDAwMjAwMDBXcDAwMOYnFJQof5s9q4OUCAHigTD9JAAAAFQQZLEgEcm9vdBUCABUMJQIYBGJvZHklAAAWDBkcGRwmCBwVDBkVABkYBGJvZHkVBBYMFsQBFtYBJgg8NgAoAXgYAAAZHBUGFQAVAgAAABbEARYMNtYBACgJaHlwYXJxdWV0GRwcAAAAaQAAAFBBUjE=";
/** `zstd` of two JSON lines, and of a text. */
const ZSTD_LINES = "KLUv/QRo3QAAqHsidGV4dCI6Im9uZSJ9CnR3byJ9CgEAUsw6kOLf7g==";
const ZSTD_TEXT = "KLUv/QRYWQAAcGxhaW4gdGV4dAr1tQVR";
const base64 = (text: string) => Buffer.from(text, "base64");

describe("text files and folders", () => {
  it("give one document each, sorted by path below the folder, without dot files and empty ones", async () => {
    folder.write("tree/b.txt", "second");
    folder.write("tree/a/z.md", "first \u00fc");
    folder.write("tree/a/empty.txt", "");
    folder.write("tree/c.txt.gz", gzipSync("third"));
    folder.write("tree/d.txt.zst", base64(ZSTD_TEXT));
    folder.write("tree/.git/config", "no");
    expect(await read([folder.path("tree")])).toEqual([
      ["a/z.md", "first \u00fc"],
      ["b.txt", "second"],
      ["c.txt.gz", "third"],
      ["d.txt.zst", "plain text\n"],
    ]);
  });

  it("keep names apart", async () => {
    const one = folder.write("one/readme", "1");
    const two = folder.write("two/readme", "2");
    expect(await read([one, two])).toEqual([
      ["readme", "1"],
      ["readme (2)", "2"],
    ]);
  });

  it("say what is wrong", async () => {
    expect(await messageOf(() => read([folder.path("nowhere")]))).toMatch(
      /^InputError: .*nowhere does not exist/,
    );
    expect(await messageOf(() => read([folder.write("e.txt", "")]))).toMatch(/e\.txt is empty/);
    expect(await messageOf(() => read(["/dev/zero"]))).toBe(
      "InputError: /dev/zero is neither a file nor a folder; give one of them",
    );
    expect(await messageOf(() => read([folder.write("i.png", "PNG\0\0")]))).toMatch(
      /i\.png is not text \(byte 3 is 0\)/,
    );
    const cut = gzipSync("a".repeat(100_000)).subarray(0, 60);
    expect(await messageOf(() => read([folder.write("cut.txt.gz", cut)]))).toMatch(
      /^InputError: .*cut\.txt\.gz is not a whole gzip file/,
    );
    const cutZstd = base64(ZSTD_TEXT).subarray(0, 12);
    expect(await messageOf(() => read([folder.write("cut.txt.zst", cutZstd)]))).toMatch(
      /^InputError: .*cut\.txt\.zst is not a whole Zstandard file/,
    );
    expect(await messageOf(() => read([folder.write("x.txt.zst", "no zstd here")]))).toMatch(
      /^InputError: .*x\.txt\.zst is not a whole Zstandard file/,
    );
    expect(await messageOf(() => read([folder.write("x.parquet.gz", "")]))).toMatch(/decompress it first/);
    expect(await messageOf(() => read([folder.write("hollow/.hidden", "").replace("/.hidden", "")]))).toMatch(
      /there is no file in/,
    );
  });
});

describe("JSON lines", () => {
  it("give one document per line, plain, gzip and Zstandard, across read pieces", async () => {
    const lines = '{"text":"one"}\n\r\n{"id":1,"text":"two \\u00e9\\n"}\n{"text":""}\n{"text":"three"}';
    const expected = ["one", "two é\n", "three"];
    const rows = await read([folder.write("l.jsonl", lines)]);
    expect(rows).toEqual([
      ["l.jsonl#1", "one"],
      ["l.jsonl#3", "two é\n"],
      ["l.jsonl#5", "three"],
    ]);
    const zipped = await read([folder.write("l.jsonl.gz", gzipSync(lines))]);
    expect(zipped.map((row) => row[1])).toEqual(expected);
    const zstd = await read([folder.write("l.ndjson.zst", base64(ZSTD_LINES))]);
    expect(zstd.map((row) => row[1])).toEqual(["one", "two"]);
    const long = "x".repeat(3_000_000);
    const big = await read([folder.write("big.jsonl", `{"text":"${long}"}\n{"text":"after"}\n`)]);
    expect(big.map((row) => row[1] === long || row[1])).toEqual([true, "after"]);
  });

  it("come from Windows too: a byte order mark, CRLF, blank lines, lone surrogates", async () => {
    const lines = folder.write("win.jsonl", '\uFEFF{"text":"one"}\r\n\r\n{"text":"\\ud800two"}\r\n');
    expect(await read([lines])).toEqual([
      ["win.jsonl#1", "one"],
      ["win.jsonl#3", "\uFFFDtwo"],
    ]);
  });

  it("take another field", async () => {
    const path = folder.write("f.jsonl", '{"content":"c"}\n');
    expect(await read([path], { field: "content" })).toEqual([["f.jsonl#1", "c"]]);
  });

  it("name the line at fault", async () => {
    const bad = (text: string) => messageOf(() => read([folder.write("bad.jsonl", text)]));
    expect(await bad('{"text":"a"}\n{"text":\n')).toMatch(/^InputError: .*bad\.jsonl line 2 is not JSON/);
    expect(await bad('{"text":"a"}\n\n{"content":"b","id":2}\n')).toMatch(
      /bad\.jsonl line 3 has no field "text"; its fields are "content", "id"/,
    );
    expect(await bad('{"text":12}\n')).toMatch(/line 1: field "text" is 12; it must be a string/);
    expect(await bad("[1]\n")).toMatch(/line 1 is no JSON object/);
  });
});

describe("Parquet", () => {
  it("gives one document per row of the column, over row groups, codecs and encodings", async () => {
    const snappy = folder.write("s.parquet", base64(PARQUET_SNAPPY));
    expect(await read([snappy])).toEqual([
      ["s.parquet#1", "Grüße aus Köln"],
      ["s.parquet#2", "second row"],
      ["s.parquet#3", "second row"],
      ["s.parquet#6", "last 🚀\r\n"],
    ]);
    const gzip = folder.write("g.parquet", base64(PARQUET_GZIP));
    expect((await read([gzip], { field: "body" })).map((row) => row[1])).toEqual([
      "Grüße aus Köln",
      "second row",
      "second row",
      "x",
      "last 🚀\r\n",
    ]);
  });

  it("says what is wrong", async () => {
    const snappy = folder.write("s.parquet", base64(PARQUET_SNAPPY));
    expect(await messageOf(() => read([snappy], { field: "body" }))).toMatch(
      /s\.parquet has no column "body"; its columns are "text", "id"/,
    );
    expect(await messageOf(() => read([snappy], { field: "id" }))).toMatch(
      /column "id" holds INT32; it must hold strings/,
    );
    const cut = folder.write("c.parquet", base64(PARQUET_SNAPPY).subarray(0, 300));
    expect(await messageOf(() => read([cut]))).toMatch(/^InputError: .*c\.parquet cannot be read as Parquet/);
    // codec GZIP (2) replaced by LZO (3) in the column's metadata
    const bytes = base64(PARQUET_GZIP);
    const at = bytes.indexOf(Buffer.from("body")) === -1 ? -1 : bytes.lastIndexOf(Buffer.from("body")) + 4;
    expect([...bytes.subarray(at, at + 2)]).toEqual([0x15, 0x04]);
    bytes[at + 1] = 0x06;
    const lzo = folder.write("lzo.parquet", bytes);
    expect(await messageOf(() => read([lzo], { field: "body" }))).toMatch(/compressed with LZO; .*SNAPPY/);
  });
});

describe("token shards", () => {
  it("give one document, or one per end-of-text token", async () => {
    const path = folder.write("t.bin", shard([9, 1, 2, 9, 3, 9], 2));
    expect(await read([path])).toEqual([["t.bin#0", [9, 1, 2, 9, 3, 9]]]);
    expect(await read([path], { endOfText: 9 })).toEqual([
      ["t.bin#0", [9, 1, 2]],
      ["t.bin#1", [9, 3]],
      ["t.bin#2", [9]],
    ]);
    const wide = folder.write("w.bin", shard([128_000, 5], 4));
    expect(await read([wide])).toEqual([["w.bin#0", [128_000, 5]]]);
  });

  it("say what is wrong", async () => {
    const bad = (data: Buffer) => messageOf(() => read([folder.write("bad.bin", data)]));
    const good = shard([1, 2, 3], 2);
    expect(await bad(good.subarray(0, 100))).toMatch(/bad\.bin is 100 bytes, too short for .* 1024/);
    expect(await bad(good.subarray(0, -1))).toMatch(
      /is 1029 bytes, but its header announces 3 tokens.* 1030/,
    );
    expect(await bad(shard([1], 2, (h) => h.fill(7, 0, 1)))).toMatch(
      /is not a token shard: it starts with 7/,
    );
    expect(await bad(shard([1], 2, (h) => h.fill(2, 1, 2)))).toMatch(/version 2; version 1 is read/);
    const text = folder.write("t.txt", "text");
    const path = folder.write("t.bin", good);
    expect(await messageOf(() => read([text, path]))).toMatch(
      /t\.bin holds token ids and .*t\.txt holds text/,
    );
  });
});
