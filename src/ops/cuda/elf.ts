/**
 * Reads the kernels of a cubin (an ELF file): parameter sizes, launch bound and static shared memory. With it the
 * mock driver checks launches where no card is.
 *
 * Per kernel, section ".nv.info.<name>" holds attributes: format (u8), attribute (u8), then a u16 that is the value
 * or, for format 4, the length of what follows.
 */
export interface CompiledKernel {
  readonly parameterBytes: readonly number[];
  /** Threads of a block that `__launch_bounds__` allows; 1024 without it. */
  readonly maxThreads: number;
  readonly staticSharedBytes: number;
}

const INFO = ".nv.info.";
const SHARED = ".nv.shared.";
const SIZED = 4;
const MAX_THREADS = 0x05;
const PARAMETER = 0x17;

/** By name; null when `image` is not an ELF file (PTX). */
export function compiledKernels(image: Uint8Array): Map<string, CompiledKernel> | null {
  const bytes = Buffer.from(image.buffer, image.byteOffset, image.byteLength);
  if (bytes.toString("latin1", 0, 4) !== "\x7fELF") return null;
  const table = Number(bytes.readBigUInt64LE(0x28));
  const [entryBytes, count, namesIndex] = [0x3a, 0x3c, 0x3e].map((at) => bytes.readUInt16LE(at));
  const section = (i: number) => {
    const at = table + entryBytes * i;
    return {
      nameAt: bytes.readUInt32LE(at),
      start: Number(bytes.readBigUInt64LE(at + 24)),
      size: Number(bytes.readBigUInt64LE(at + 32)),
    };
  };
  const names = section(namesIndex).start;
  const sections = new Map(
    Array.from({ length: count }, (_, i) => {
      const { nameAt, start, size } = section(i);
      const name = bytes.toString("latin1", names + nameAt, bytes.indexOf(0, names + nameAt));
      return [name, { start, size }] as const;
    }),
  );
  const kernels = new Map<string, CompiledKernel>();
  for (const [name, { start, size }] of sections) {
    if (!name.startsWith(INFO)) continue;
    const kernel = name.slice(INFO.length);
    const staticSharedBytes = sections.get(SHARED + kernel)?.size ?? 0;
    kernels.set(kernel, { ...attributes(bytes, start, size), staticSharedBytes });
  }
  return kernels;
}

function attributes(bytes: Buffer, start: number, size: number) {
  const parameterBytes: number[] = [];
  let maxThreads = 1024;
  for (let at = start; at < start + size; ) {
    const [format, attribute, value] = [bytes[at], bytes[at + 1], bytes.readUInt16LE(at + 2)];
    at += 4;
    if (format !== SIZED) continue;
    // A parameter: index (u32), ordinal (u16), offset (u16), and a word whose bits 18 and up are its bytes.
    if (attribute === PARAMETER)
      parameterBytes[bytes.readUInt16LE(at + 4)] = bytes.readUInt32LE(at + 8) >>> 18;
    if (attribute === MAX_THREADS) {
      maxThreads = bytes.readUInt32LE(at) * bytes.readUInt32LE(at + 4) * bytes.readUInt32LE(at + 8);
    }
    at += value;
  }
  return { parameterBytes, maxThreads };
}
