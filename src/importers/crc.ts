/** Checksums of record files: CRC-32 (IEEE, `.wandb`) and CRC-32C (Castagnoli, TFRecord). */

function table(polynomial: number): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, n) => {
    let c = n;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ polynomial : c >>> 1;
    return c >>> 0;
  });
}

const IEEE = table(0xedb88320);
const CASTAGNOLI = table(0x82f63b78);

function crc(bytes: Uint8Array, of: Uint32Array): number {
  let c = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) c = of[(c ^ bytes[i]) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

export function crc32(bytes: Uint8Array): number {
  return crc(bytes, IEEE);
}

/** CRC-32C, rotated and offset as TFRecord wants it. */
export function maskedCrc(bytes: Uint8Array): number {
  const c = crc(bytes, CASTAGNOLI);
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
}
