/** The table from attention kernel numbers to kernels. */
import {
  ATTENTION_BACKWARD,
  ATTENTION_DECODE,
  ATTENTION_FORWARD,
  ATTENTION_MEANS,
  ATTENTION_PACK_BACKWARD,
  ATTENTION_PACK_FORWARD,
  ATTENTION_ROUTE,
  ATTENTION_STATIC_GATE,
} from "../../attention-ids";
import { backwardUnit } from "./backward";
import { decodeTile } from "./decode";
import { forwardUnit } from "./forward";
import { Arguments } from "./layout";
import { packBackward, packForward } from "./pack";
import { meansTile, routeUnit, staticGateUnit } from "./route";

export function attentionTile(kernel: i32, args: usize, tile: i32, worker: i32): void {
  const a = changetype<Arguments>(args);
  const scratch = a.scratch + <usize>worker * <usize>a.scratchStride;
  switch (kernel) {
    case ATTENTION_STATIC_GATE: staticGateUnit(a, tile); break;
    case ATTENTION_MEANS: meansTile(a, tile, scratch); break;
    case ATTENTION_ROUTE: routeUnit(a, tile, scratch); break;
    case ATTENTION_PACK_FORWARD: packForward(a, tile); break;
    case ATTENTION_FORWARD: forwardUnit(a, tile, scratch); break;
    case ATTENTION_PACK_BACKWARD: packBackward(a, tile); break;
    case ATTENTION_BACKWARD: backwardUnit(a, tile, scratch); break;
    case ATTENTION_DECODE: decodeTile(a, tile, scratch); break;
    default: unreachable();
  }
}
