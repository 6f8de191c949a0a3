/** Loss against compute: the scaling chart of one bucket or of all, by either convention, and the finding in words. */
import { useMemo } from "preact/hooks";
import type { Convention } from "../src/compute/compute.ts";
import type { FitResult } from "../src/fit/types.ts";
import { conventionTitle, lossTitle } from "../src/report/labels.ts";
import { bucketPanels } from "../src/report/panels.ts";
import { scalingChart } from "../src/report/scaling.ts";
import { ChartFrame } from "./chart-frame.tsx";
import { Choice } from "./controls.tsx";
import { fenced } from "./fence.ts";
import { Claims, Reading, Warnings } from "./findings.tsx";
import { choice, go, hidden, interval, param, spellInterval } from "./location.ts";
import { curvePoints, type Study } from "./store.ts";

export const NOTHING: FitResult = { laws: [], comparisons: [], warnings: [], reading: [], reading_parts: [] };

const LAYOUTS = [
  { value: "one", title: "one bucket" },
  { value: "all", title: "every bucket" },
] as const;

/** The convention of compute in the address. */
export function useConvention(): Convention {
  return choice<Convention>("axis", ["6ND", "attended"]);
}

export function ConventionChoice({ study }: { study: Study }) {
  if (!study.facts.value.conventions.includes("attended")) return null;
  return (
    <Choice
      label="Compute"
      name="axis"
      value={useConvention()}
      values={[
        { value: "6ND", title: "6ND" },
        { value: "attended", title: "as attended" },
      ]}
      reset={["x"]}
    />
  );
}

/** The bucket in the address as an index of the study's; the leading one by default, null for all positions. */
export function useBucket(study: Study): number | null {
  const { buckets, headline } = study.facts.value;
  const given = param("bucket");
  if (given === "all") return null;
  const index = buckets.findIndex((one) => `${one.position_start}-${one.position_end}` === given);
  return index >= 0 ? index : headline;
}

export function BucketChoice({ study }: { study: Study }) {
  const { buckets, headline } = study.facts.value;
  if (buckets.length === 0) return null;
  const key = (index: number | null) =>
    index === null ? "all" : `${buckets[index]!.position_start}-${buckets[index]!.position_end}`;
  const order = [headline, ...[null, ...buckets.keys()].filter((index) => index !== headline)];
  const titleOf = (index: number | null) => (index === null ? "all positions" : buckets[index]!.label);
  // The leading bucket is the default, wherever it stands in the list.
  return (
    <label class="control">
      Positions{" "}
      <select
        value={key(useBucket(study))}
        onChange={(event) => {
          const { value } = event.currentTarget;
          go({ bucket: value === key(headline) ? null : value, y: null });
        }}
      >
        {order.map((index) => (
          <option key={key(index)} value={key(index)}>
            {titleOf(index)}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Scaling({ study }: { study: Study }) {
  const { buckets } = study.facts.value;
  const axis = useConvention();
  const layout = choice("panels", ["one", "all"]);
  const bucket = useBucket(study);
  const fit = study.results.value?.fit ?? NOTHING;
  const place = bucket === null ? { position_start: null, position_end: null } : buckets[bucket]!;
  const all = layout === "all" && buckets.length > 1;
  const changed = study.evaluationsChanged.value;
  const facts = study.facts.value;
  const { points, note } = useMemo(
    () => fenced(curvePoints(study, all ? [...buckets.keys()] : [bucket])),
    [study, all, bucket, changed, facts, study.runs.value.length],
  );
  const attentions = facts.attentions.map(({ label }) => label);
  const [xDomain, yDomain] = [interval("x"), interval("y")];
  const away = hidden.value;
  const unfinished = study.runs.value.flatMap(({ id, state }) => (state === "finished" ? [] : id));
  const zoom = (domains: Parameters<NonNullable<Parameters<typeof ChartFrame>[0]["onZoom"]>>[0]) =>
    go({ x: domains && spellInterval(domains.x), y: domains && spellInterval(domains.y) });
  const caption = all
    ? `LM loss against compute by ${conventionTitle(axis)} in every position bucket, on the same axes, with the ratio of losses at the mean budget.`
    : `${lossTitle(place)} against compute by ${conventionTitle(axis)}. Thin lines are runs, dots the final losses the laws go through, dashed lines the laws, shaded areas the 95 % interval of one new run.`;
  return (
    <section aria-labelledby="scaling-title">
      <h2 id="scaling-title">Loss against compute</h2>
      <div class="controls">
        <ConventionChoice study={study} />
        {buckets.length > 1 && (
          <Choice label="Show" name="panels" value={layout} values={LAYOUTS} reset={["x", "y"]} />
        )}
        {!all && <BucketChoice study={study} />}
        {(xDomain || yDomain) && !all && (
          <button type="button" onClick={() => zoom(null)}>
            Whole range
          </button>
        )}
      </div>
      {all ? (
        <ChartFrame
          key="all"
          draw={(width) => bucketPanels(points, fit, axis, { width, attentions, hidden: away })}
          inputs={[points, fit, axis, away]}
          caption={caption}
          notes={[note]}
          empty="No evaluation by position yet."
        />
      ) : (
        <ChartFrame
          key="one"
          draw={(width) =>
            points.length === 0
              ? null
              : scalingChart(points, fit, {
                  axis,
                  bucket: place,
                  width,
                  attentions,
                  hidden: away,
                  xDomain,
                  yDomain,
                  unfinished: new Set(unfinished),
                  name: axis === "6ND" ? "chart" : "chart-attended",
                })
          }
          inputs={[points, fit, axis, place, away, unfinished.join("\n"), param("x"), param("y")]}
          caption={caption}
          notes={[note]}
          empty="No held-out evaluation yet: a run is evaluated several times on its way, the first time early."
          onZoom={zoom}
        />
      )}
      <Reading fit={fit} />
      <Claims study={study} />
      <Warnings fit={fit} />
    </section>
  );
}
