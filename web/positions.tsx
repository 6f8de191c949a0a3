/** What each position of the context costs: final loss, ratio of losses and compute multiplier by position. */
import { useMemo } from "preact/hooks";
import { conventionTitle } from "../src/report/labels.ts";
import { positionChart } from "../src/report/position.ts";
import { multiplierChart, ratioChart } from "../src/report/ratio.ts";
import type { RunView } from "../src/server/api.ts";
import { ChartFrame } from "./chart-frame.tsx";
import { fenced } from "./fence.ts";
import { hidden } from "./location.ts";
import { Recall, Truncated } from "./measured.tsx";
import { ConventionChoice, NOTHING, useConvention } from "./scaling.tsx";
import { curvePoints, type Study } from "./store.ts";

export function Positions({ study }: { study: Study }) {
  const { buckets, attentions: known } = study.facts.value;
  const changed = study.evaluationsChanged.value;
  const facts = study.facts.value;
  const { points, note } = useMemo(
    () => fenced(curvePoints(study, [...buckets.keys()])),
    [study, changed, facts, study.runs.value.length],
  );
  const drawn = new Set(points.map(({ run }) => run));
  const onTheirWay = study.runs.value.filter(
    ({ id, state, attention }) => state !== "finished" && drawn.has(id) && !hidden.value.has(attention),
  );
  const axis = useConvention();
  const fit = study.results.value?.fit ?? NOTHING;
  const attentions = known.map(({ label }) => label);
  const away = hidden.value;
  const label = fit.comparisons[0]?.baseline;
  const baseline = known.find((one) => one.label === label)?.title.toLowerCase() ?? "the baseline";
  const view = (width?: number) => ({ width, attentions, hidden: away });
  return (
    <section aria-labelledby="positions-title">
      <h2 id="positions-title">Loss against position</h2>
      <ChartFrame
        draw={(width) => positionChart(points, view(width))}
        inputs={[points, away]}
        caption="Held-out loss at the last evaluation of each run, by position in the context; a line for each attention and size."
        notes={[note, unfinished(onTheirWay)]}
        empty="No evaluation by position yet."
      />
      <Truncated study={study} />
      <h3>Against {baseline}</h3>
      {fit.comparisons.length === 0 ? (
        <p class="empty">
          Nothing is compared yet: that takes laws of two attentions, from finished runs of three sizes each.
        </p>
      ) : (
        <>
          <div class="controls">
            <ConventionChoice study={study} />
          </div>
          <ChartFrame
            draw={(width) => ratioChart(fit, axis, view(width))}
            inputs={[fit, axis, away]}
            caption={`Ratio of losses in each bucket, compute by ${conventionTitle(axis)}. Bars are 95 % intervals; above 1 is worse.`}
            empty="Nothing that is shown is compared by position."
          />
          <ChartFrame
            draw={(width) => multiplierChart(fit, axis, view(width))}
            inputs={[fit, axis, away]}
            caption={`Compute multiplier: compute needed for the same loss, by ${conventionTitle(axis)}. Bars are 95 % intervals; above 1 is worse.`}
            empty="No compute multiplier is bounded by these laws."
          />
        </>
      )}
      <Recall study={study} />
    </section>
  );
}

/** Runs that are drawn before their end, which are not to be compared with others. */
function unfinished(runs: readonly RunView[]): string | null {
  if (runs.length === 0) return null;
  const some = runs
    .slice(0, 4)
    .map(({ id, step, steps }) => `${id} (step ${step}${steps === null ? "" : ` of ${steps}`})`);
  const more = runs.length > some.length ? [`${runs.length - some.length} more`] : [];
  return `Not at their end, so not to be compared with others: ${[...some, ...more].join(", ")}.`;
}
