/** Stands for Node's modules in the browser, where nothing that needs them is called. */
function missing(): never {
  throw new Error("not in a browser");
}

export { missing as closeSync, missing as openSync, missing as readSync };
export class StringDecoder {}
