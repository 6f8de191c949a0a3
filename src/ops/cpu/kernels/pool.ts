/**
 * The worker pool's inner side: tiles of a job are claimed from one counter until none is left.
 *
 * A job is published by writing its description and then setting the counter to -tiles. Whoever adds 1 and gets a
 * negative number has claimed a tile of the present job: the main thread publishes the next one only after all tiles
 * of this one are counted as done. So a worker that wakes late does no harm, and a job never waits for a sleeper.
 */
import { runTile } from "./index";

// The control block: each word on a cache line of its own.
const EPOCH: usize = 0;
const CLAIM: usize = 64;
const DONE: usize = 128;
const SLEEPERS: usize = 192;
const MAIN_WAITS: usize = 256;
const FAILED: usize = 320;
const STOP: usize = 384;
const JOB: usize = 448;

/** Turns of the waiting loop (each about a nanosecond) before a thread goes to sleep. */
const SPIN: i32 = 50000;

/** Runs a job with the pool's help. False when a worker failed. `args` must stay as it is until the return. */
export function run(control: usize, kernel: i32, args: usize, tiles: i32): bool {
  if (tiles == 1) {
    runTile(kernel, args, 0, 0);
    return true;
  }
  store<i32>(control + JOB, kernel);
  store<u32>(control + JOB, <u32>args, 4);
  store<i32>(control + JOB, tiles, 8);
  atomic.store<i32>(control + DONE, 0);
  atomic.store<i32>(control + CLAIM, -tiles);
  atomic.add<i32>(control + EPOCH, 1);
  const sleepers = atomic.load<i32>(control + SLEEPERS);
  if (sleepers > 0) atomic.notify(control + EPOCH, min(sleepers, tiles - 1));
  claimTiles(control, 0);
  let spins = 0;
  while (true) {
    const done = atomic.load<i32>(control + DONE);
    if (done == tiles) return true;
    if (atomic.load<i32>(control + FAILED) != 0) return false;
    if (++spins < SPIN) continue;
    atomic.store<i32>(control + MAIN_WAITS, 1);
    // Not longer than 10 ms at a time: a worker that fails does not count its tiles.
    atomic.wait<i32>(control + DONE, done, 10000000);
    atomic.store<i32>(control + MAIN_WAITS, 0);
  }
}

function claimTiles(control: usize, worker: i32): void {
  let finished = 0;
  let claimed = atomic.add<i32>(control + CLAIM, 1);
  if (claimed >= 0) return;
  const kernel = load<i32>(control + JOB);
  const args = <usize>load<u32>(control + JOB, 4);
  const tiles = load<i32>(control + JOB, 8);
  do {
    runTile(kernel, args, claimed + tiles, worker);
    finished++;
    claimed = atomic.add<i32>(control + CLAIM, 1);
  } while (claimed < 0 && claimed != i32.MIN_VALUE);
  atomic.add<i32>(control + DONE, finished);
  if (atomic.load<i32>(control + MAIN_WAITS) != 0) atomic.notify(control + DONE, 1);
}

/** A worker's life: waits for jobs until told to stop. Idle workers sleep. */
export function work(control: usize, worker: i32): void {
  let epoch = 0;
  while (true) {
    let spins = 0;
    while (atomic.load<i32>(control + EPOCH) == epoch) {
      if (++spins < SPIN) continue;
      atomic.add<i32>(control + SLEEPERS, 1);
      atomic.wait<i32>(control + EPOCH, epoch, -1);
      atomic.sub<i32>(control + SLEEPERS, 1);
    }
    epoch = atomic.load<i32>(control + EPOCH);
    if (atomic.load<i32>(control + STOP) != 0) return;
    claimTiles(control, worker);
  }
}

/** Wakes all workers to end. */
export function stop(control: usize): void {
  atomic.store<i32>(control + STOP, 1);
  atomic.add<i32>(control + EPOCH, 1);
  atomic.notify(control + EPOCH, -1);
}

/** Called in a worker's stead when a kernel trapped there. */
export function fail(control: usize): void {
  atomic.store<i32>(control + FAILED, 1);
  atomic.notify(control + DONE, 1);
}
