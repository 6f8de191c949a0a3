/** Entry of the module: what the host calls, and the table from kernel numbers to kernels. */
import * as id from "../kernel-ids";
import { attentionTile } from "./attention/index";
import { embeddingBackwardTile, embeddingForwardTile } from "./embedding";
import { copyTile, fillZeroTile, sumPartialsTile } from "./flat";
import { gemmTile, packTile } from "./gemm";
import { keyConvBackwardKeysTile, keyConvBackwardTile, keyConvCopyTile, keyConvForwardTile } from "./keyconv";
import { lossRowsTile } from "./loss";
import { rmsNormBackwardTile, rmsNormForwardTile } from "./norm";
import { adamwTile, rootOfSumTile, squaresTile } from "./optimizer";
import { splitRopeBackwardTile, splitRopeForwardTile } from "./rope";
import { swigluBackwardTile, swigluForwardTile } from "./swiglu";

export { MICRO_SCRATCH_BYTES, setMicroScratch } from "./micro";
export { fail, run, stop, work } from "./pool";

/** One tile of a kernel's work, done by worker `worker`. `args` holds the kernel's arguments, 4 bytes each. */
export function runTile(kernel: i32, args: usize, tile: i32, worker: i32): void {
  if (kernel >= id.ATTENTION) {
    attentionTile(kernel, args, tile, worker);
    return;
  }
  switch (kernel) {
    case id.PACK_B: return packTile(args, tile);
    case id.GEMM: return gemmTile(args, tile);
    case id.FILL_ZERO: return fillZeroTile(args, tile);
    case id.COPY: return copyTile(args, tile);
    case id.EMBEDDING_FORWARD: return embeddingForwardTile(args, tile);
    case id.EMBEDDING_BACKWARD: return embeddingBackwardTile(args, tile);
    case id.RMS_NORM_FORWARD: return rmsNormForwardTile(args, tile);
    case id.RMS_NORM_BACKWARD: return rmsNormBackwardTile(args, tile);
    case id.SUM_PARTIALS: return sumPartialsTile(args, tile);
    case id.SWIGLU_FORWARD: return swigluForwardTile(args, tile);
    case id.SWIGLU_BACKWARD: return swigluBackwardTile(args, tile);
    case id.SPLIT_ROPE_FORWARD: return splitRopeForwardTile(args, tile);
    case id.SPLIT_ROPE_BACKWARD: return splitRopeBackwardTile(args, tile);
    case id.KEY_CONV_COPY: return keyConvCopyTile(args, tile);
    case id.KEY_CONV_FORWARD: return keyConvForwardTile(args, tile);
    case id.KEY_CONV_BACKWARD: return keyConvBackwardTile(args, tile);
    case id.KEY_CONV_BACKWARD_KEYS: return keyConvBackwardKeysTile(args, tile);
    case id.LOSS_ROWS: return lossRowsTile(args, tile);
    case id.SQUARES: return squaresTile(args, tile);
    case id.ROOT_OF_SUM: return rootOfSumTile(args);
    case id.ADAMW: return adamwTile(args, tile);
    default: unreachable();
  }
}
