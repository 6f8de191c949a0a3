/** A shared worker: holds one stream of events for every page of this browser that shows the dashboard. */
import { type Heard, openStream, type Wish } from "./stream.ts";

const pages = new Set<MessagePort>();
/** Of the last change that was heard. */
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

(globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = ({ ports: [page] }) => {
  page!.onmessage = ({ data }: MessageEvent<Wish | null>) => {
    if (data === null) pages.delete(page!);
    else pages.add(page!);
    if (data === null && pages.size > 0) return;
    end();
    cursor = data === null ? null : cursor === null ? data.cursor : earlier(cursor, data.cursor);
    if (data === null) return;
    end = openStream(data.url, cursor!, (heard: Heard) => {
      if (heard.kind === "change" && heard.cursor !== "") cursor = heard.cursor;
      for (const one of pages) one.postMessage(heard);
    });
  };
};
