/** Every run of the study: what it is doing, how far it is, what it has reached, and why it failed. */
import type { ComponentChildren } from "preact";
import { formatBudget } from "../src/fit/words.ts";
import { formatCount, formatFixed } from "../src/report/labels.ts";
import type { RunView } from "../src/server/api.ts";
import { Scroll } from "./controls.tsx";
import { choice, go, hidden, param } from "./location.ts";
import { csvText, saveFile } from "./save.ts";
import { connection, now, type Study } from "./store.ts";
import { shade } from "./theme.ts";
import { numberOf } from "./track.ts";

interface ColumnOf {
  readonly key: string;
  readonly title: string;
  readonly number?: boolean;
  readonly value: (run: RunView) => number | string | null;
  readonly show?: (run: RunView) => ComponentChildren;
}

const finite = (value: number, format: (value: number) => string) =>
  Number.isNaN(value) ? "" : Number.isFinite(value) ? format(value) : value > 0 ? "∞" : "-∞";

/** A loss; what is not finite is shown as the mark that it is. */
function Loss({ value }: { value: RunView["loss"] }) {
  if (value === null) return null;
  const number = numberOf(value);
  if (!Number.isFinite(number)) return <span class="odd">{String(value)}</span>;
  return <>{formatFixed(number, 4)}</>;
}

function duration(seconds: number): string {
  const s = Math.round(seconds);
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172_800)
    return `${Math.floor(s / 3600)} h ${String(Math.round((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${(s / 86_400).toFixed(1)} days`;
}

const COLUMNS: readonly ColumnOf[] = [
  { key: "run", title: "run", value: (run) => run.id },
  { key: "attention", title: "attention", value: (run) => run.attention },
  { key: "model", title: "size", value: (run) => run.model },
  { key: "state", title: "state", value: (run) => run.state, show: (run) => <State run={run} /> },
  {
    key: "step",
    title: "step",
    number: true,
    value: (run) => run.step,
    show: (run) => <Progress run={run} />,
  },
  {
    key: "loss",
    title: "loss",
    number: true,
    value: (run) => numberOf(run.loss),
    show: (run) => <Loss value={run.loss} />,
  },
  {
    key: "heldOut",
    title: "held out",
    number: true,
    value: (run) => numberOf(run.heldOutLoss),
    show: (run) => <Loss value={run.heldOutLoss} />,
  },
  {
    key: "rate",
    title: "tokens/s",
    number: true,
    value: (run) => numberOf(run.tokensPerSecond),
    show: (run) => finite(numberOf(run.tokensPerSecond), formatCount),
  },
  {
    key: "left",
    title: "time left",
    number: true,
    value: (run) => run.secondsLeft,
    show: (run) => (run.secondsLeft === null ? "" : duration(run.secondsLeft)),
  },
  {
    key: "attempt",
    title: "attempt",
    number: true,
    value: (run) => run.attempt,
    show: (run) => run.attempt || "",
  },
  {
    key: "tokens",
    title: "tokens",
    number: true,
    value: (run) => run.tokens,
    show: (run) => finite(run.tokens ?? Number.NaN, formatCount),
  },
  {
    key: "compute",
    title: "PFLOP/s-days, 6ND",
    number: true,
    value: (run) => run.pflops_days,
    show: (run) => (run.pflops_days === null ? "" : formatBudget(run.pflops_days)),
  },
  {
    key: "parameters",
    title: "parameters",
    number: true,
    value: (run) => run.parameters,
    show: (run) => finite(run.parameters ?? Number.NaN, formatCount),
  },
];

function State({ run }: { run: RunView }) {
  return <span class={`state ${silentSince(run, now.value) ? "silent" : run.state}`}>{run.state}</span>;
}

const minute = (time: string) => `${time.replace("T", " ").slice(0, 16)} UTC`;

/** Seconds without a record after which a run may have been killed: an evaluation or a checkpoint takes less. */
const SILENCE = 180;
/** Steps that take longer than that are waited for. */
const SILENT_STEPS = 20;

/** When a running run last wrote, where that is long ago; null otherwise. */
function silentSince(run: RunView, at: number): string | null {
  if (run.state !== "running" || run.updated === null) return null;
  const left = (run.steps ?? 0) - run.step;
  const stepSeconds = run.secondsLeft !== null && left > 0 ? run.secondsLeft / left : 0;
  const silence = (at - Date.parse(run.updated)) / 1000;
  return silence > Math.max(SILENCE, SILENT_STEPS * stepSeconds) ? run.updated : null;
}

function Progress({ run }: { run: RunView }) {
  const { step, steps } = run;
  if (steps === null) return <>{step > 0 ? step : ""}</>;
  return (
    <span class="progress">
      {step} / {steps}{" "}
      <progress max={steps} value={Math.min(step, steps)} aria-label={`${run.id}: steps done`} />
    </span>
  );
}

export function Runs({ study }: { study: Study }) {
  const { attentions, notes } = study.facts.value;
  const key = choice("sort", ["", ...COLUMNS.map((column) => column.key)]);
  const down = param("order") === "down";
  const runs = sorted(
    study.runs.value.filter((run) => !hidden.value.has(run.attention)),
    key,
    down,
  );
  // A curves table knows less of its runs than a study does.
  const columns = COLUMNS.filter(({ value }) =>
    runs.some((run) => {
      const known = value(run);
      return known !== null && known !== 0 && !Number.isNaN(known);
    }),
  );
  const colours = new Map(attentions.map(({ label, colour }) => [label, colour]));
  const titles = new Map(attentions.map(({ label, title }) => [label, title]));
  const sort = (next: string) => go({ sort: next, order: key === next && !down ? "down" : null });
  const saveTable = () => {
    const rows = runs.map((run) => [
      ...COLUMNS.map((column) => column.value(run) ?? undefined),
      run.message ?? undefined,
    ]);
    saveFile(
      "runs.csv",
      csvText([[...COLUMNS.map((column) => column.title), "message"], ...rows]),
      "text/csv",
    );
  };
  return (
    <section aria-labelledby="runs-title">
      <h2 id="runs-title">Runs</h2>
      <Summary study={study} />
      {notes.map((note) => (
        <p class="note" key={note}>
          {note}
        </p>
      ))}
      {runs.length === 0 ? (
        <p class="empty">No run yet. They appear here as soon as they are planned.</p>
      ) : (
        <Scroll label="All runs">
          <table class="runs">
            <thead>
              <tr>
                {columns.map((column) => (
                  <th
                    key={column.key}
                    scope="col"
                    class={column.number ? "number" : ""}
                    aria-sort={key === column.key ? (down ? "descending" : "ascending") : undefined}
                  >
                    <button type="button" onClick={() => sort(column.key)}>
                      {column.title}
                      {key === column.key ? (down ? " ↓" : " ↑") : ""}
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {runs.map((run) => (
                <Row
                  key={run.id}
                  run={run}
                  title={titles.get(run.attention) ?? run.attention}
                  colour={colours.get(run.attention)}
                  columns={columns}
                />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {runs.length > 0 && (
        <p class="exports">
          Save as{" "}
          <button type="button" onClick={saveTable}>
            CSV
          </button>
        </p>
      )}
    </section>
  );
}

function Row(props: {
  run: RunView;
  title: string;
  colour: string | undefined;
  columns: readonly ColumnOf[];
}) {
  const { run, title, colour, columns } = props;
  const since = silentSince(run, now.value);
  const words = [
    ...(since === null ? [] : [`no sign of life since ${minute(since)}`]),
    ...(run.message === null ? [] : [run.message]),
    ...run.notes,
  ];
  return (
    <>
      <tr class={words.length > 0 ? "told" : ""}>
        {columns.map((column) => {
          const className = column.number ? "number" : "";
          if (column.key === "run") {
            return (
              <th scope="row" key="run">
                <button
                  type="button"
                  class="link"
                  onClick={() => go({ run: run.id, x: null, y: null }, "curves")}
                >
                  {run.id}
                </button>
              </th>
            );
          }
          return (
            <td key={column.key} class={className} data-label={column.title}>
              {column.key === "attention" ? (
                <>
                  <span class="swatch" style={{ background: shade(colour ?? "#555555") }} />
                  {title}
                </>
              ) : column.show ? (
                column.show(run)
              ) : (
                column.value(run)
              )}
            </td>
          );
        })}
      </tr>
      {words.length > 0 && (
        <tr class={`reason ${run.state}`}>
          <td colSpan={columns.length}>
            <span>{words.join("; ")}</span>
          </td>
        </tr>
      )}
    </>
  );
}

/** How many runs are in which state, and when the running ones will have ended. */
function Summary({ study }: { study: Study }) {
  const runs = study.runs.value;
  const count = (state: RunView["state"]) => runs.filter((run) => run.state === state).length;
  const states = (["running", "planned", "finished", "failed", "unreadable"] as const).filter(
    (state) => count(state) > 0,
  );
  const { loading } = study.facts.value;
  const silent = runs.filter((run) => silentSince(run, now.value)).length;
  return (
    <p class="summary">
      {runs.length} {runs.length === 1 ? "run" : "runs"}
      {states.length > 0 && ": "}
      {states.map((state, i) => (
        <span key={state}>
          {i > 0 && ", "}
          <b>{count(state)}</b> {state}
        </span>
      ))}
      {silent > 0 && `; ${silent} of the running without a sign of life`}
      {connection.value === "frozen" && count("running") > 0 && " when this report was made"}
      {loading && ". Records are still being read."}
    </p>
  );
}

function sorted(runs: readonly RunView[], key: string, down: boolean): readonly RunView[] {
  const column = COLUMNS.find((one) => one.key === key);
  if (!column) return runs;
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  return [...runs].sort((a, b) => {
    const [left, right] = [column.value(a), column.value(b)];
    // What is not known comes last either way.
    const [noLeft, noRight] = [left, right].map((value) => value === null || Number.isNaN(value));
    if (noLeft || noRight) return Number(noLeft) - Number(noRight);
    const order =
      typeof left === "number" && typeof right === "number"
        ? left - right
        : compare(String(left), String(right));
    return down ? -order : order;
  });
}
