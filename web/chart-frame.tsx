/**
 * One chart of the report on screen: drawn to the width there is, with a crosshair that tells exact values by pointer
 * and by arrow keys, zoom by dragging, and its files.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Interval } from "../src/fit/types.ts";
import { type Chart, type ChartRow, drawChart } from "../src/report/chart.ts";
import { formatNumber } from "../src/report/labels.ts";
import { ExportButtons } from "./export-buttons.tsx";
import { dark, shade } from "./theme.ts";

interface Placed {
  readonly row: ChartRow;
  readonly x: number;
  readonly y: number;
}

interface FrameProps {
  /** The chart for a width in pixels, or as in a report; null when there is nothing to draw: `empty` then says why. */
  readonly draw: (width?: number) => Chart | null;
  /** What the drawing depends on. */
  readonly inputs: readonly unknown[];
  readonly caption: string;
  readonly empty: string;
  /** What the chart does not show as one would expect; those of the chart itself follow. */
  readonly notes?: readonly (string | null)[];
  readonly onZoom?: (domains: { x: Interval; y: Interval } | null) => void;
  /** Told of each value that the crosshair goes to. */
  readonly onPoint?: (row: ChartRow) => void;
}

export function ChartFrame({ draw, inputs, caption, empty, notes = [], onZoom, onPoint }: FrameProps) {
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = holder.current!;
    const measure = () => {
      // Steps of 20 pixels: a scroll bar that comes and goes redraws nothing.
      const room = Math.floor(element.clientWidth / 20) * 20;
      setWidth(Math.min(1180, Math.max(280, room)));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { chart, problem } = useMemo(() => {
    try {
      return { chart: width > 0 ? draw(width) : null, problem: null };
    } catch (error) {
      // Data that no chart was made for: the rest of the page is still of use.
      return { chart: null, problem: `This cannot be drawn: ${(error as Error).message}` };
    }
  }, [width, ...inputs]);
  return (
    <figure class="chart">
      <div ref={holder} class="paper">
        {chart ? (
          <Picture chart={chart} onZoom={onZoom} onPoint={onPoint} />
        ) : (
          width > 0 && <p class="empty">{problem ?? empty}</p>
        )}
      </div>
      <figcaption>
        <p>{caption}</p>
        {[...notes, ...(chart?.notes ?? [])].map(
          (note) =>
            note !== null && (
              <p class="note" key={note}>
                {note}
              </p>
            ),
        )}
        {chart && <ExportButtons chart={() => draw()} />}
      </figcaption>
    </figure>
  );
}

function Picture({ chart, onZoom, onPoint }: { chart: Chart } & Pick<FrameProps, "onZoom" | "onPoint">) {
  const paper = useRef<HTMLDivElement>(null);
  const placed = useRef<Placed[]>([]);
  const invert = useRef<((x: number, y: number) => [number, number]) | null>(null);
  const chosen = useSignal<Placed | null>(null);
  const box = useSignal<{ from: [number, number]; to: [number, number] } | null>(null);
  const isDark = dark.value;

  useEffect(() => {
    const svg = drawChart(chart, document);
    const place = placement(svg, chart);
    placed.current = place.rows;
    invert.current = place.invert;
    // New values under the crosshair: it stays on its line.
    const before = chosen.peek();
    if (before)
      chosen.value =
        place.rows.find((one) => sameLine(one.row, before.row) && one.row.x === before.row.x) ?? null;
    const element = svg as unknown as SVGSVGElement;
    // Groups are named by mark ("line", "area"), which says nothing; title and description do.
    for (const named of element.querySelectorAll("[aria-label]")) named.removeAttribute("aria-label");
    if (isDark) darken(element);
    paper.current!.replaceChildren(element);
  }, [chart, isDark]);

  const point = (to: Placed | null) => {
    if (to && to.row !== chosen.peek()?.row) onPoint?.(to.row);
    chosen.value = to;
  };
  const at = (event: PointerEvent): [number, number] => {
    const bounds = paper.current!.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  };
  const down = (event: PointerEvent) => {
    if (!onZoom || !invert.current || event.button !== 0 || event.pointerType === "touch") return;
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    box.value = { from: at(event), to: at(event) };
  };
  const move = (event: PointerEvent) => {
    const here = at(event);
    if (box.value) box.value = { ...box.value, to: here };
    else point(nearest(placed.current, here));
  };
  const up = () => {
    const dragged = box.value;
    box.value = null;
    if (!dragged || !onZoom || !invert.current) return;
    const { from, to } = dragged;
    if (Math.abs(from[0] - to[0]) < 8 || Math.abs(from[1] - to[1]) < 8) return;
    const [x0, y1] = invert.current(Math.min(from[0], to[0]), Math.min(from[1], to[1]));
    const [x1, y0] = invert.current(Math.max(from[0], to[0]), Math.max(from[1], to[1]));
    onZoom({ x: [x0, x1], y: [y0, y1] });
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Escape") chosen.value = null;
    else if (event.key === "0" && onZoom) onZoom(null);
    else {
      const next = step(placed.current, chosen.value, event.key);
      if (!next) return;
      point(next);
    }
    event.preventDefault();
  };
  return (
    <>
      <div
        class={onZoom ? "picture zooms" : "picture"}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it takes arrow keys.
        tabIndex={0}
        role="application"
        aria-label={`${chart.title}. Arrow keys move the crosshair.`}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerLeave={() => {
          if (!box.value) chosen.value = null;
        }}
        onDblClick={() => onZoom?.(null)}
        onKeyDown={key}
      >
        <div ref={paper} />
        <Crosshair chart={chart} chosen={chosen.value} box={box.value} />
      </div>
      <Readout chart={chart} row={chosen.value?.row ?? null} zooms={onZoom !== undefined} />
    </>
  );
}

function Crosshair({
  chart,
  chosen,
  box,
}: {
  chart: Chart;
  chosen: Placed | null;
  box: { from: [number, number]; to: [number, number] } | null;
}) {
  const { width, height } = chart;
  return (
    <svg class="crosshair" width={width} height={height} aria-hidden="true">
      {chosen && (
        <>
          <line x1={chosen.x} x2={chosen.x} y1={0} y2={height} />
          <line x1={0} x2={width} y1={chosen.y} y2={chosen.y} />
          <circle cx={chosen.x} cy={chosen.y} r={5} stroke={shade(chosen.row.colour)} />
        </>
      )}
      {box && (
        <rect
          x={Math.min(box.from[0], box.to[0])}
          y={Math.min(box.from[1], box.to[1])}
          width={Math.abs(box.from[0] - box.to[0])}
          height={Math.abs(box.from[1] - box.to[1])}
        />
      )}
    </svg>
  );
}

function Readout({ chart, row, zooms }: { chart: Chart; row: ChartRow | null; zooms: boolean }) {
  return (
    <p class="readout" aria-live="polite">
      {row ? (
        <>
          <span class="swatch" style={{ background: shade(row.colour) }} />
          <b>{row.series}</b>{" "}
          {row.positions && chart.rows.some((r) => r.positions !== row.positions) && `at ${row.positions}, `}
          {chart.columns.x} <output>{exact(row.x)}</output>, {chart.columns.y} <output>{exact(row.y)}</output>
          {row.state !== undefined && `: ${row.state}`}
          {row.value !== undefined && (
            <>
              , {chart.columns.value} <output>{exact(row.value)}</output>
            </>
          )}
          {row.low !== undefined && row.high !== undefined && (
            <>
              {" "}
              <output>
                [{formatNumber(row.low, 5)}, {formatNumber(row.high, 5)}]
              </output>
            </>
          )}
        </>
      ) : zooms ? (
        "Point or use arrow keys for exact values; drag to zoom, double-click or 0 to go back."
      ) : (
        "Point or use arrow keys for exact values."
      )}
    </p>
  );
}

/** To five digits; a count stays whole. */
function exact(value: number): string {
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : formatNumber(value, 5);
}

/** Where each value of the chart stands, in pixels; and, with one panel, which values a pixel has. */
function placement(svg: ReturnType<typeof drawChart>, chart: Chart) {
  const x = svg.scale("x")!;
  const y = svg.scale("y")!;
  const fx = svg.scale("fx");
  const fy = svg.scale("fy");
  const { marginLeft = 0, marginTop = 0 } = chart.plot;
  const [xLow, xHigh] = x.range as Interval;
  const [yLow, yHigh] = y.range as Interval;
  const rows = chart.rows.flatMap((row): Placed[] => {
    const dx = fx && row.facet?.fx !== undefined ? fx.apply(row.facet.fx) - marginLeft : 0;
    const dy = fy && row.facet?.fy !== undefined ? fy.apply(row.facet.fy) - marginTop : 0;
    const [px, py] = [x.apply(row.x), y.apply(row.y)];
    const inside =
      px >= Math.min(xLow, xHigh) - 0.5 &&
      px <= Math.max(xLow, xHigh) + 0.5 &&
      py >= Math.min(yLow, yHigh) - 0.5 &&
      py <= Math.max(yLow, yHigh) + 0.5;
    return inside ? [{ row, x: px + dx, y: py + dy }] : [];
  });
  const invert =
    fx || fy ? null : (px: number, py: number): [number, number] => [x.invert!(px), y.invert!(py)];
  return { rows, invert };
}

/** The value next to a pixel. Finals and estimates are preferred to lines that run through them. */
function nearest(rows: readonly Placed[], [x, y]: readonly [number, number]): Placed | null {
  let best: Placed | null = null;
  let distance = 60 ** 2;
  for (const placed of rows) {
    let d = (placed.x - x) ** 2 + (placed.y - y) ** 2;
    if (placed.row.kind === "projection") d += 40;
    if (d < distance) {
      distance = d;
      best = placed;
    }
  }
  return best;
}

function sameLine(a: ChartRow, b: ChartRow): boolean {
  return (
    a.series === b.series && a.kind === b.kind && a.facet?.fx === b.facet?.fx && a.facet?.fy === b.facet?.fy
  );
}

/** The next value in the direction of an arrow key: along its own line, or on the next line at about the same x. */
function step(rows: readonly Placed[], from: Placed | null, key: string): Placed | null {
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return null;
  if (!from) return rows[0] ?? null;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const sign = key === "ArrowUp" ? -1 : 1;
    const others = rows.filter(
      (one) =>
        !sameLine(one.row, from.row) && (one.y - from.y) * sign > 0.01 && Math.abs(one.x - from.x) < 40,
    );
    return (
      others.reduce<Placed | null>(
        (best, one) => (best && Math.abs(best.y - from.y) <= Math.abs(one.y - from.y) ? best : one),
        null,
      ) ?? from
    );
  }
  const own = rows.filter((one) => sameLine(one.row, from.row)).sort((a, b) => a.x - b.x);
  const here = own.indexOf(from);
  if (key === "Home") return own[0]!;
  if (key === "End") return own.at(-1)!;
  return own[Math.min(own.length - 1, Math.max(0, here + (key === "ArrowRight" ? 1 : -1)))]!;
}

/** Takes the chart's colours, which are for white paper, to those of the dark page. */
function darken(svg: SVGSVGElement): void {
  for (const element of [svg, ...svg.querySelectorAll("[fill], [stroke]")]) {
    for (const attribute of ["fill", "stroke", "color"]) {
      const value = element.getAttribute(attribute);
      if (value?.startsWith("#")) element.setAttribute(attribute, shade(value));
    }
  }
}
