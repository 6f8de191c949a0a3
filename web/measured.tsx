/** What a study measured beside losses: losses with less context and by learning rate, recall by distance. */
import { useMemo } from "preact/hooks";
import { ROUTING_CAPTION, recallChart, routingChart } from "../src/report/recall.ts";
import { sweepCaption, sweepChart, sweepsOf, sweepTable, sweepWords } from "../src/report/sweep.ts";
import { type RunTruncated, truncatedChart } from "../src/report/truncated.ts";
import type { RoutedConfig } from "../src/study/routing-expected.ts";
import { isRecall } from "../src/train/recall-result.ts";
import { ChartFrame } from "./chart-frame.tsx";
import { DataTable, Sentences } from "./findings.tsx";
import { hidden } from "./location.ts";
import type { Study } from "./store.ts";
import { numberOf } from "./track.ts";

/** Head width that is reckoned with. */
const WIDEST = 4096;
/** Contexts of a `truncated.json` that are drawn. */
const MOST_CONTEXTS = 32;

/** Whether a `truncated.json` is what it should be. */
function isTruncated(result: unknown): result is RunTruncated["result"] {
  const { contexts, lm_loss } = (result ?? {}) as { contexts?: unknown; lm_loss?: unknown };
  return (
    Array.isArray(contexts) &&
    Array.isArray(lm_loss) &&
    contexts.length > 1 &&
    contexts.length <= MOST_CONTEXTS &&
    contexts.length === lm_loss.length &&
    contexts.every((context, i) => Number.isSafeInteger(context) && context > (contexts[i - 1] ?? 0)) &&
    lm_loss.every((loss) => Number.isFinite(loss) && loss > 0)
  );
}

/** Of a `config.json`, which need not be as it should be, the shape of a head. */
function shapeOf(attention: string, config: unknown): RoutedConfig {
  const { headDim, ropeTheta } = (config as Partial<RoutedConfig> | null)?.shape ?? {};
  const sound = [headDim, ropeTheta].every((number) => Number.isFinite(number) && number! > 0);
  return { attention, ...(sound && headDim! <= WIDEST && { shape: { headDim, ropeTheta } }) };
}

/** What the shown runs measured, where it is as it should be. */
function useMeasured<Result>(
  study: Study,
  name: "recall" | "truncated",
  isSound: (result: unknown) => result is Result,
) {
  const runs = study.runs.value;
  const configs = study.configs.value;
  const away = hidden.value;
  return useMemo(
    () =>
      runs.flatMap(({ id, attention, model, parameters }) => {
        const kept = configs?.runs.find(({ run }) => run === id);
        const result = kept?.[name];
        if (!isSound(result) || away.has(attention)) return [];
        const size = parameters ?? undefined;
        return [{ attention, model, parameters: size, config: shapeOf(attention, kept?.config), result }];
      }),
    [configs, away, runs.length],
  );
}

export function Truncated({ study }: { study: Study }) {
  const truncated = useMeasured(study, "truncated", isTruncated);
  if (truncated.length === 0) return null;
  const every = study.facts.value.attentions.map(({ label }) => label);
  return (
    <>
      <h3>The same tokens with less context</h3>
      <ChartFrame
        draw={(width) => truncatedChart(truncated, every, width)}
        inputs={[truncated, study.facts.value]}
        caption="The last sixteenth of held-out windows, predicted with only so many tokens of the window's end kept, those predicted included; a line for each attention and size."
        empty="Nothing was measured."
      />
    </>
  );
}

export function Recall({ study }: { study: Study }) {
  const recalls = useMeasured(study, "recall", isRecall);
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
      {recalls.some(({ result }) => result.routing?.length) && (
        <ChartFrame
          draw={(width) => routingChart(recalls, every, width)}
          inputs={[recalls, study.facts.value]}
          caption={ROUTING_CAPTION}
          empty="No layer leaves blocks out."
        />
      )}
    </>
  );
}

export function Sweep({ study }: { study: Study }) {
  const runs = study.runs.value;
  const away = hidden.value;
  const sweeps = useMemo(
    () =>
      sweepsOf(
        runs.flatMap(({ id: run, attention, heldOutLoss, swept }) =>
          swept === null ? [] : [{ run, attention, loss: numberOf(heldOutLoss), ...swept }],
        ),
      ).filter(({ attention }) => !away.has(attention)),
    [away, runs],
  );
  if (sweeps.length === 0) return null;
  const attentions = study.facts.value.attentions.map(({ label }) => label);
  const words = sweepWords(sweeps, attentions);
  return (
    <>
      <h3>Learning rates</h3>
      <ChartFrame
        draw={(width) => sweepChart(sweeps, { width, attentions })}
        inputs={[sweeps, study.facts.value]}
        caption={sweepCaption(sweeps)}
        empty="Nothing was swept."
      />
      {words.length > 0 && <Sentences all={words} />}
      <DataTable table={{ title: "Final loss by learning rate", ...sweepTable(sweeps, attentions) }} open />
    </>
  );
}
