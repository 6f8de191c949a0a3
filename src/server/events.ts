/** Server-sent events to one reader: what it missed, then changes as they come, until it leaves or falls behind. */
import type { ServerResponse } from "node:http";
import type { Cursor } from "./api.ts";
import type { Journal } from "./journal.ts";

/** Readers at once: together they may hold 128 MiB. */
export const MOST_READERS = 32;
/** Milliseconds between signs of life. */
const HEARTBEAT = 10_000;
/** Bytes that may wait for a reader. One that is further behind is cut off; it resumes from its cursor. */
const MOST_WAITING = 4 * 2 ** 20;

/** Answers with the changes after `cursor`. */
export function sendEvents(response: ServerResponse, journal: Journal, cursor: Cursor | null): void {
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    // For a reverse proxy: hand it on at once.
    "X-Accel-Buffering": "no",
  });
  const write = (text: string) => {
    response.write(text);
    if (response.writableLength > MOST_WAITING) response.destroy();
  };
  write(`retry: 1000\n\n${cursor === null ? "" : journal.since(cursor)}`);
  const end = journal.listen((entry) => write(entry.text));
  const heartbeat = setInterval(() => write(": here\n\n"), HEARTBEAT);
  response.on("close", () => {
    clearInterval(heartbeat);
    end();
  });
}
