/** Numbers of the attention kernels, shared by the host and by kernels/attention/index.ts. */
export const ATTENTION_STATIC_GATE = 64;
export const ATTENTION_MEANS = 65;
export const ATTENTION_ROUTE = 66;
export const ATTENTION_PACK_FORWARD = 67;
export const ATTENTION_FORWARD = 68;
export const ATTENTION_PACK_BACKWARD = 69;
export const ATTENTION_BACKWARD = 70;
export const ATTENTION_DECODE = 71;
