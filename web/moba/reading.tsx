/** The text as one query sees it: its own block, the blocks it chose, and those it passed over. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatNumber } from "../../src/report/labels.ts";
import type { QueryRouting } from "./routed-model.ts";

interface ReadingProps {
  /** Each token as it stands in the text. */
  readonly pieces: readonly string[];
  readonly blockSize: number;
  readonly query: number;
  readonly routing: QueryRouting;
  /** What routing changes about the loss of predicting each token, nats; null: blocks are coloured, not tokens. */
  readonly costs: Float32Array | null;
  readonly choose: (query: number) => void;
}

export function Reading({ pieces, blockSize, query, routing, costs, choose }: ReadingProps) {
  const [pinned, setPinned] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const T = pieces.length;
  // A query that was chosen elsewhere comes into sight; the page itself stays where it is.
  const chosenHere = useRef(-1);
  useEffect(() => {
    if (chosenHere.current === query) return;
    const token = place.current!.querySelector<HTMLElement>(`[data-token="${query}"]`);
    if (token) place.current!.scrollTop = token.offsetTop - 0.8 * place.current!.clientHeight;
  }, [query, pieces]);
  const take = (token: number) => {
    chosenHere.current = token;
    choose(token);
  };
  const at = (event: Event) => {
    const token = (event.target as Element).closest<HTMLElement>("[data-token]")?.dataset.token;
    return token === undefined ? null : Number(token);
  };
  const key = (event: KeyboardEvent) => {
    const to = {
      ...{ ArrowLeft: query - 1, ArrowRight: query + 1, Home: 0, End: T - 1 },
      ...{ ArrowUp: query - blockSize, ArrowDown: query + blockSize },
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = Math.min(T - 1, Math.max(0, to));
    take(next);
    place.current!.querySelector(`[data-token="${next}"]`)?.scrollIntoView({ block: "nearest" });
  };
  return (
    <div
      class={costs ? "reading costs" : "reading"}
      ref={place}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it takes arrow keys.
      tabIndex={0}
      role="application"
      aria-label="The text in blocks. Arrow keys move the query by a token, or up and down by a block."
      onKeyDown={key}
      onPointerOver={(event) => {
        const token = at(event);
        if (token !== null && !pinned && event.pointerType === "mouse") take(token);
      }}
      onClick={(event) => {
        const token = at(event);
        if (token === null) return;
        setPinned(!pinned || token !== query);
        take(token);
      }}
    >
      {Array.from({ length: Math.ceil(T / blockSize) }, (_, block) => {
        const earlier = routing.earlier[block];
        const state =
          block === routing.own ? "own" : earlier ? (earlier.chosen ? "taken" : "passed") : "later";
        return (
          <Block
            key={block}
            pieces={pieces}
            costs={costs}
            start={block * blockSize}
            end={Math.min(T, (block + 1) * blockSize)}
            state={state}
            block={block}
            tag={tagOf(state, earlier)}
            query={block === routing.own ? query : -1}
          />
        );
      })}
    </div>
  );
}

/** Of a fixed size, so that the text stays where it is whatever is chosen. */
function tagOf(state: string, earlier: QueryRouting["earlier"][number] | undefined): string {
  if (state === "own") return "own";
  if (!earlier?.chosen) return "";
  return earlier.rank > 0 ? `chosen ${formatNumber(earlier.score, 3)}` : "attended";
}

/** Nats from which a cost is shown, and shown strongly. */
export const COSTS = { shown: 0.05, strong: 0.25 };

function costClass(cost: number): string {
  const size = Math.abs(cost);
  if (!(size >= COSTS.shown)) return "";
  return `${cost > 0 ? "dearer" : "cheaper"}${size >= COSTS.strong ? " strong" : ""}`;
}

function Block(props: {
  pieces: readonly string[];
  costs: Float32Array | null;
  block: number;
  start: number;
  end: number;
  state: string;
  tag: string;
  /** The query when it lies in this block, else -1. */
  query: number;
}) {
  const { pieces, costs, block, start, end, state, tag, query } = props;
  // The same element again is not compared piece by piece: hovering changes a few blocks of many.
  return useMemo<ComponentChildren>(
    () => (
      <div class={`block ${state}`}>
        <span class="tag">
          {block}
          <br />
          {tag}
        </span>
        <span>
          {pieces.slice(start, end).map((piece, i) => {
            const token = start + i;
            const place = token === query ? "query" : query >= 0 && token > query ? "unseen" : "";
            return (
              <span
                key={token}
                data-token={token}
                class={costs ? `${place} ${costClass(costs[token])}` : place}
              >
                {piece}
              </span>
            );
          })}
        </span>
      </div>
    ),
    [pieces, costs, block, start, end, state, tag, query],
  );
}
