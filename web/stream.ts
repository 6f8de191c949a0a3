/** The server's events, as a page or the worker that pages share hears them. */
import type { Change } from "../src/server/api.ts";

export type Heard =
  | { readonly kind: "open" }
  /** `forGood`: it is not tried again. */
  | { readonly kind: "lost"; readonly forGood: boolean }
  /** A change as JSON, and the cursor after it. */
  | { readonly kind: "change"; readonly change: string; readonly cursor: string };

const KINDS: readonly Change["kind"][] = ["run", "points", "evaluation", "gone", "study", "results", "reset"];

/** Hears the changes after a cursor at `url`; returns what ends that. */
export function openStream(url: string, cursor: string, hear: (heard: Heard) => void): () => void {
  const source = new EventSource(`${url}?cursor=${encodeURIComponent(cursor)}`);
  source.onopen = () => hear({ kind: "open" });
  source.onerror = () => hear({ kind: "lost", forGood: source.readyState === EventSource.CLOSED });
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => {
      const { data, lastEventId } = event as MessageEvent<string>;
      hear({ kind: "change", change: data, cursor: lastEventId });
    });
  }
  return () => {
    source.onerror = null;
    source.close();
  };
}

/**
 * The same, so that every window of this browser hears: it opens six connections to a server and no more. The first
 * windows have streams of their own, which are the quickest; later ones share one. A shared worker keeps count; where there
 * is none, a window has its own.
 */
export function listen(url: string, cursor: string, hear: (heard: Heard) => void): () => void {
  let end = () => {};
  const alone = () => {
    end();
    end = openStream(url, cursor, hear);
  };
  if (typeof SharedWorker !== "function") {
    alone();
    return () => end();
  }
  const worker = new SharedWorker(new URL("./stream-worker.ts", import.meta.url), { type: "module" });
  worker.onerror = alone;
  worker.port.onmessage = ({ data }: MessageEvent<Heard | typeof OWN>) =>
    data === OWN ? alone() : hear(data);
  worker.port.postMessage({ url, cursor } satisfies Wish);
  return () => {
    worker.onerror = null;
    worker.port.onmessage = null;
    worker.port.postMessage(null);
    end();
  };
}

/** What a page tells the worker: where it is; null when it listens no more. */
export interface Wish {
  readonly url: string;
  readonly cursor: string;
}

/** What the worker tells a page that may have a stream of its own. */
export const OWN = "own";
