/**
 * Stands for Node's modules in the browser. The rooms shared with it read and write files only in Node; of the rest it
 * has what they need.
 */
function missing(): never {
  throw new Error("not in a browser");
}

export {
  missing as closeSync,
  missing as dirname,
  missing as existsSync,
  missing as fstatSync,
  missing as fsyncSync,
  missing as join,
  missing as mkdirSync,
  missing as openSync,
  missing as readFileSync,
  missing as readSync,
  missing as realpathSync,
  missing as renameSync,
  missing as resolve,
  missing as rmdirSync,
  missing as rmSync,
  missing as statSync,
  missing as writeSync,
};
export class StringDecoder {}

export const constants = { MAX_STRING_LENGTH: 2 ** 29 - 24 };

export function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
