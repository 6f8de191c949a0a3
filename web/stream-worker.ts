/** A shared worker: lets a few windows of this browser have streams of their own, and holds one for all others. */
import { type Heard, OWN, openStream, type Wish } from "./stream.ts";

/** With the shared one that leaves two of a browser's six connections for everything else. */
const MOST_OWN = 3;

const own = new Set<MessagePort>();
const sharing = new Set<MessagePort>();
/** Of the last change that the shared stream brought; null while there is none. */
let cursor: string | null = null;
let end = () => {};

/** Where to begin for pages that are at either cursor: a change that is heard twice does no harm. */
function earlier(a: string, b: string): string {
  const [lifeA, numberA] = a.split("-");
  const [lifeB, numberB] = b.split("-");
  // Of two lives of the server one is over. No cursor is this one, so everything is read again.
  if (lifeA !== lifeB) return "unknown";
  return Number(numberA) <= Number(numberB) ? a : b;
}

function leave(page: MessagePort): void {
  own.delete(page);
  if (!sharing.delete(page) || sharing.size > 0) return;
  end();
  cursor = null;
}

function join(page: MessagePort, wish: Wish): void {
  if (own.size < MOST_OWN) {
    own.add(page);
    page.postMessage(OWN);
    return;
  }
  sharing.add(page);
  end();
  cursor = cursor === null ? wish.cursor : earlier(cursor, wish.cursor);
  end = openStream(wish.url, cursor, (heard: Heard) => {
    if (heard.kind === "change" && heard.cursor !== "") cursor = heard.cursor;
    for (const one of sharing) one.postMessage(heard);
  });
}

(globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = ({ ports: [page] }) => {
  page!.onmessage = ({ data }: MessageEvent<Wish | null>) => {
    if (data === null) leave(page!);
    else join(page!, data);
  };
};
