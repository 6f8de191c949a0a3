/** NVRTC: compiles CUDA C++ at run time, where kernels have not been compiled ahead. */
import type { LibraryHandle } from "koffi";
import { InputError } from "../../errors.ts";

type Call = (...args: unknown[]) => number;

export class Nvrtc {
  /** "13.0". */
  readonly version: string;
  readonly #create: Call;
  readonly #compile: Call;
  readonly #getCubinSize: Call;
  readonly #getCubin: Call;
  readonly #getLogSize: Call;
  readonly #getLog: Call;
  readonly #destroy: Call;
  readonly #out = new BigUint64Array(new ArrayBuffer(8));

  constructor(library: LibraryHandle) {
    const bind = (name: string, args: string[]) => library.func(name, "int", args) as unknown as Call;
    this.#create = bind("nvrtcCreateProgram", [
      "void *",
      "const char *",
      "const char *",
      "int",
      "void *",
      "void *",
    ]);
    this.#compile = bind("nvrtcCompileProgram", ["uint64_t", "int", "const char **"]);
    this.#getCubinSize = bind("nvrtcGetCUBINSize", ["uint64_t", "void *"]);
    this.#getCubin = bind("nvrtcGetCUBIN", ["uint64_t", "void *"]);
    this.#getLogSize = bind("nvrtcGetProgramLogSize", ["uint64_t", "void *"]);
    this.#getLog = bind("nvrtcGetProgramLog", ["uint64_t", "void *"]);
    this.#destroy = bind("nvrtcDestroyProgram", ["void *"]);
    const parts = new Int32Array(new ArrayBuffer(8));
    bind("nvrtcVersion", ["void *", "void *"])(parts.subarray(0, 1), parts.subarray(1));
    this.version = `${parts[0]}.${parts[1]}`;
  }

  /** The cubin of a source. Throws `InputError` with the compiler's own words when it does not compile. */
  compile(source: string, path: string, options: readonly string[]): Uint8Array {
    this.#check(this.#create(this.#out, source, path, 0, null, null), `preparing ${path}`);
    const program = this.#out[0];
    try {
      if (this.#compile(program, options.length, options) !== 0) {
        throw new InputError(`${path} does not compile with NVRTC ${this.version}:\n${this.#logOf(program)}`);
      }
      this.#check(this.#getCubinSize(program, this.#out), `compiling ${path}`);
      const cubin = Buffer.from(new ArrayBuffer(Number(this.#out[0])));
      this.#check(this.#getCubin(program, cubin), `compiling ${path}`);
      return cubin;
    } finally {
      this.#out[0] = program;
      this.#destroy(this.#out);
    }
  }

  #logOf(program: bigint): string {
    const size = new BigUint64Array(new ArrayBuffer(8));
    if (this.#getLogSize(program, size) !== 0) return "(no log)";
    const log = Buffer.from(new ArrayBuffer(Number(size[0])));
    this.#getLog(program, log);
    return log.toString("utf8").replace(/\0.*$/s, "").trim();
  }

  #check(code: number, what: string): void {
    if (code !== 0) throw new InputError(`${what} with NVRTC ${this.version} failed with code ${code}`);
  }
}
