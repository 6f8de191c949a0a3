/** Numbers of the kernels, shared by the host and by `runTile` in kernels/index.ts. */
export const PACK_B = 0;
export const GEMM = 1;
export const FILL_ZERO = 2;
export const COPY = 3;
export const EMBEDDING_FORWARD = 4;
export const EMBEDDING_BACKWARD = 5;
export const RMS_NORM_FORWARD = 6;
export const RMS_NORM_BACKWARD = 7;
export const SUM_PARTIALS = 8;
export const SWIGLU_FORWARD = 9;
export const SWIGLU_BACKWARD = 10;
export const SPLIT_ROPE_FORWARD = 11;
export const SPLIT_ROPE_BACKWARD = 12;
export const KEY_CONV_COPY = 13;
export const KEY_CONV_FORWARD = 14;
export const KEY_CONV_BACKWARD = 15;
export const KEY_CONV_BACKWARD_KEYS = 16;
export const LOSS_ROWS = 17;
export const SQUARES = 18;
export const ROOT_OF_SUM = 19;
export const ADAMW = 20;
/** Attention kernels count from here on; see kernels/attention/. */
export const ATTENTION = 64;

/** Rows (tokens) of one tile of the row-wise kernels. Sums over tokens are taken per tile, so results depend on it. */
export const ROW_TILE = 32;
/** Columns of one tile of the kernels that walk down columns. */
export const COLUMN_TILE = 16;
/** Elements of one tile of the kernels over flat tensors. */
export const FLAT_TILE = 16384;
