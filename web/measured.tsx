/** What a study measured beside losses: recall by distance, and losses by learning rate. */
import { useMemo } from "preact/hooks";
import { type RunRecall, recallChart } from "../src/report/recall.ts";
import { type SweptRun, sweepChart, sweepsOf } from "../src/report/sweep.ts";
import type { RecallResult } from "../src/train/types.ts";
import { ChartFrame } from "./chart-frame.tsx";
import { hidden } from "./location.ts";
import type { Study } from "./store.ts";
import { numberOf } from "./track.ts";

/** What the configuration of a run says of a sweep, where it is as it should be. */
interface Told {
  readonly optimizer?: { readonly learningRate?: unknown };
}

/** Whether a `recall.json` is what it should be. */
function isRecall(result: unknown): result is RecallResult {
  const { bands } = (result ?? {}) as { bands?: unknown };
  return (
    Array.isArray(bands) &&
    bands.every((band) =>
      ["distance_start", "distance_end", "answers", "right"].every((field) => Number.isFinite(band?.[field])),
    )
  );
}

export function Recall({ study }: { study: Study }) {
  const runs = study.runs.value;
  const configs = study.configs.value;
  const away = hidden.value;
  const recalls = useMemo(
    () =>
      runs.flatMap(({ id, attention, model }): RunRecall[] => {
        const result = configs?.runs.find(({ run }) => run === id)?.recall;
        return isRecall(result) && !away.has(attention) ? [{ attention, model, result }] : [];
      }),
    [configs, away, runs.length],
  );
  if (recalls.length === 0) return null;
  const every = study.facts.value.attentions.map(({ label }) => label);
  return (
    <>
      <h3>Recall by distance</h3>
      <ChartFrame
        draw={(width) => recallChart(recalls, every, width)}
        inputs={[recalls, study.facts.value]}
        caption="Share of records whose value is found again, by how far back they stand; a line for each attention and size."
        empty="Nothing was found."
      />
    </>
  );
}

export function Sweep({ study }: { study: Study }) {
  const runs = study.runs.value;
  const configs = study.configs.value;
  const away = hidden.value;
  const sweeps = useMemo(
    () =>
      sweepsOf(
        runs.flatMap(({ id, attention, model, state, heldOutLoss }): SweptRun[] => {
          const config = configs?.runs.find(({ run }) => run === id)?.config as Told | null | undefined;
          const learningRate = Number(config?.optimizer?.learningRate);
          const loss = numberOf(heldOutLoss);
          if (state !== "finished" || !(learningRate > 0) || !(loss > 0) || away.has(attention)) return [];
          return [{ attention, size: model.replace(/-lr[\d.e-]+$/, ""), learningRate, loss }];
        }),
      ),
    [configs, away, runs],
  );
  if (sweeps.length === 0) return null;
  const attentions = study.facts.value.attentions.map(({ label }) => label);
  return (
    <>
      <h3>Learning rates</h3>
      <ChartFrame
        draw={(width) => sweepChart(sweeps, { width, attentions })}
        inputs={[sweeps, study.facts.value]}
        caption="Final held-out loss over all positions against the peak learning rate."
        empty="Nothing was swept."
      />
    </>
  );
}
