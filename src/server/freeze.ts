/**
 * The report as the dashboard's page in one file: the same view with its data in it, no network. Where scripts do not
 * run it shows the report's sections, and where the dashboard was not built it is those alone.
 */
import { createHash } from "node:crypto";
import { writeWhole } from "../files.ts";
import { bucketLabel, distinctBuckets, headlineBucket, type RunCurve, runCurves } from "../fit/points.ts";
import type { CurvePoint, FitResult } from "../fit/types.ts";
import { orderAttentions } from "../fit/words.ts";
import { escapeHtml } from "../report/escape.ts";
import { type TableReport, type TableReportOptions, tableReport } from "../report/from-table.ts";
import { attentionColours, attentionTitles } from "../report/labels.ts";
import { STYLE } from "../report/page.ts";
import { type StudyReport, type StudyReportOptions, studyReport } from "../report/study.ts";
import { packageVersion } from "../study/folder.ts";
import type { EvaluationColumns, RunView, Snapshot, StudyView } from "./api.ts";
import { readFrozenPage } from "./assets.ts";
import { Library } from "./library.ts";
import { resultsOf } from "./results.ts";
import { keyOf } from "./run.ts";
import { known, StepColumns, value } from "./steps.ts";
import type { Study } from "./study.ts";

/** Steps of training kept, of all runs together, and of one run at least and at most. */
const STEPS = { all: 40_000, least: 200, most: 2000 };
/** Held-out losses of a curves table kept, of all runs together; evaluations of one run at least and at most. */
const LOSSES = { all: 200_000, least: 20, most: 400 };

/** Bytes of the weights of the model that a page carries, and characters of its tokenizer. */
const MOST_WEIGHTS = 2_000_000;
const MOST_TOKENIZER = 1_000_000;

/** The report of a study folder. As `studyReport`; report.html is the dashboard's page. */
export async function frozenStudyReport(
  folder: string,
  options: StudyReportOptions = {},
): Promise<StudyReport> {
  const written = studyReport(folder, options);
  const page = readFrozenPage();
  if (page !== null) {
    const snapshot = await studySnapshot(folder);
    writeWhole(written.report, frozenPage(page, snapshot, written.body));
  }
  return written;
}

/** The report of a curves table. As `tableReport`; report.html is the dashboard's page. */
export function frozenTableReport(
  points: readonly CurvePoint[],
  folder: string,
  options: TableReportOptions,
): TableReport {
  const written = tableReport(points, folder, options);
  const page = readFrozenPage();
  if (page !== null) {
    const snapshot = tableSnapshot(points, written.fit, options.title);
    writeWhole(written.report, frozenPage(page, snapshot, written.body));
  }
  return written;
}

/** `page` is the dashboard's, `body` the report's sections as HTML. */
export function frozenPage(page: string, snapshot: Snapshot, body: string): string {
  const hash = createHash("sha256").update(STYLE).digest("base64");
  // `<` begins no tag inside JSON, so that no text of the data can end the element.
  const data = JSON.stringify(snapshot).replaceAll("<", "\\u003c");
  const put = (text: string, place: string | RegExp, content: string) => text.replace(place, () => content);
  let html = put(page, "style-src ", `style-src 'sha256-${hash}' `);
  html = put(
    html,
    /<title>[^<]*<\/title>/,
    `<title>${escapeHtml(snapshot.overview.studies[0].name)}</title>`,
  );
  html = put(html, "</head>", `<noscript><style>${STYLE}</style></noscript>\n</head>`);
  html = put(html, /<noscript>(?!<style>)[^<]*<\/noscript>/, `<noscript><main>\n${body}\n</main></noscript>`);
  return put(
    html,
    "<!--mobalab-data-->",
    `<script type="application/json" id="mobalab-data">${data}</script>`,
  );
}

/** Of no journal. */
const CURSOR = "frozen";

export async function studySnapshot(folder: string): Promise<Snapshot> {
  const library = new Library([folder]);
  await library.load();
  library.close();
  const { version, studies } = library.overview();
  return {
    format: 1,
    overview: { cursor: CURSOR, version, time: null, studies: studies.map(anyTime) },
    studies: await Promise.all(
      studies.map(async ({ id, name, runs }) => {
        const study = library.study(id)!;
        const points = within(STEPS, runs.length);
        const results = study.results();
        return {
          id: name,
          metrics: { ...study.metrics(points, null)!, cursor: CURSOR },
          evaluations: { ...study.evaluations(), cursor: CURSOR },
          results: results && { ...results, cursor: CURSOR, fitted: null },
          configs: study.configs(),
          model: await smallModel(study),
        };
      }),
    ),
  };
}

/** A study by its own name, not its folder's, and without the times of its files: a copy's are others. */
function anyTime(study: StudyView): StudyView {
  const runs = study.runs.map((run) => ({ ...run, started: null, updated: null }));
  return { ...study, id: study.name, runs };
}

/** The largest MoBA model that a page can carry; one of another attention where there is none. */
async function smallModel(study: Study): Promise<Snapshot["studies"][number]["model"]> {
  const isMoba = (attention: string) => Number(attention.startsWith("moba"));
  const [chosen] = study
    .models()
    .models.filter(({ bytes }) => bytes <= MOST_WEIGHTS)
    .sort((a, b) => isMoba(b.attention) - isMoba(a.attention) || b.bytes - a.bytes);
  const view = chosen && study.model(chosen.run);
  const weights = chosen && study.weights(chosen.run);
  if (!view || !weights || JSON.stringify(view.tokenizer).length > MOST_TOKENIZER) return null;
  const bytes = await new Response(weights.body).arrayBuffer();
  return { ...view, weights: Buffer.from(bytes).toString("base64") };
}

export function tableSnapshot(points: readonly CurvePoint[], fit: FitResult, title: string): Snapshot {
  const { curves } = runCurves(points);
  const buckets = distinctBuckets(curves).flatMap(({ position_start, position_end }) =>
    position_start === null || position_end === null ? [] : [{ position_start, position_end }],
  );
  const labels = orderAttentions(curves.map((curve) => curve.attention));
  const titles = attentionTitles(labels);
  const colours = attentionColours(labels);
  const lead = headlineBucket(curves);
  const byRun = new Map<string, RunCurve[]>();
  for (const curve of curves) {
    const key = JSON.stringify([curve.attention, curve.model, curve.name]);
    const own = byRun.get(key);
    if (own) own.push(curve);
    else byRun.set(key, [curve]);
  }
  const names = new Map<string, number>();
  const runs = [...byRun.values()].map((own) => {
    const { name } = own[0];
    const count = (names.get(name) ?? 0) + 1;
    names.set(name, count);
    return { id: count === 1 ? name : `${name} (${count})`, own };
  });
  const evaluations = within(LOSSES, runs.length * (buckets.length + 7));
  const study: StudyView = {
    id: title,
    name: title,
    config: null,
    attentions: labels.map((label, index) => ({
      label,
      title: titles.get(label)!,
      colour: colours.get(label)!,
      index,
    })),
    conventions: points.some((point) => point.pflops_days_attended !== undefined)
      ? ["6ND", "attended"]
      : ["6ND"],
    buckets: buckets.map((bucket) => ({ ...bucket, label: bucketLabel(bucket) })),
    headline:
      lead.position_start === null
        ? null
        : buckets.findIndex(
            (b) => b.position_start === lead.position_start && b.position_end === lead.position_end,
          ),
    loading: false,
    notes: [],
    runs: runs.map(({ id, own }) => tableRun(id, own)),
  };
  return {
    format: 1,
    overview: { cursor: CURSOR, version: packageVersion(), time: null, studies: [study] },
    studies: [
      {
        id: title,
        metrics: { cursor: CURSOR, runs: [] },
        evaluations: {
          cursor: CURSOR,
          runs: runs.map(({ id, own }) => tableEvaluations(id, own, buckets, evaluations)),
        },
        results: { cursor: CURSOR, ...resultsOf(fit, null) },
        configs: { runs: [] },
        model: null,
      },
    ],
  };
}

function tableRun(id: string, curves: readonly RunCurve[]): RunView {
  const whole = curves.find((curve) => curve.position_start === null);
  const { attention, model, seed, points } = whole ?? curves[0];
  const last = points.at(-1)!;
  return {
    id,
    attention,
    model,
    seed: seed ?? null,
    state: "finished",
    message: null,
    step: last.step ?? 0,
    steps: last.step ?? null,
    tokens: last.tokens ?? null,
    attempt: 1,
    loss: null,
    heldOutLoss: whole === undefined ? null : last.lm_loss,
    tokensPerSecond: last.tokens_per_second ?? null,
    secondsLeft: null,
    parameters: last.parameters ?? null,
    allParameters: null,
    pflops_days: last.pflops_days,
    pflops_days_attended: last.pflops_days_attended ?? null,
    sparsity: null,
    epochs: null,
    memory: null,
    swept: null,
    device: null,
    started: null,
    updated: null,
    notes: [],
  };
}

/** The curves of one run side by side, matched by what their rows say of when they were measured. */
function tableEvaluations(
  id: string,
  curves: readonly RunCurve[],
  buckets: readonly { readonly position_start: number; readonly position_end: number }[],
  most: number,
): EvaluationColumns {
  const longest = curves.reduce((a, b) => (b.points.length > a.points.length ? b : a));
  const columns = new StepColumns();
  for (const [i, point] of longest.points.entries()) {
    columns.put({ step: i + 1, attempt: 1, loss: point.lm_loss });
  }
  const rows = columns.thin(most).map((i) => longest.points[i]);
  const when = ({ step, tokens, pflops_days }: CurvePoint) => step ?? tokens ?? pflops_days ?? Number.NaN;
  const wanted = new Set(rows.map(when));
  const lossesOf = (curve: RunCurve | undefined) => {
    const losses = new Map<number, number>();
    for (const point of curve?.points ?? [])
      if (wanted.has(when(point))) losses.set(when(point), point.lm_loss);
    return rows.map((row) => {
      const loss = losses.get(when(row));
      return loss === undefined ? null : value(loss);
    });
  };
  const column = (of: (row: CurvePoint) => number | null | undefined) =>
    rows.map((row) => known(of(row) ?? Number.NaN));
  return {
    run: id,
    step: column((row) => row.step),
    tokens: column((row) => row.tokens),
    attempt: rows.map(() => 1),
    time_s: column((row) => row.time_s),
    pflops_days: column((row) => row.pflops_days),
    pflops_days_attended: column((row) => row.pflops_days_attended),
    lm_loss: lossesOf(curves.find((curve) => curve.position_start === null)),
    buckets: buckets.map((bucket) =>
      lossesOf(
        curves.find(
          (curve) => curve.position_start !== null && keyOf(curve as typeof bucket) === keyOf(bucket),
        ),
      ),
    ),
  };
}

function within({ all, least, most }: { all: number; least: number; most: number }, share: number): number {
  return Math.max(least, Math.min(most, Math.floor(all / Math.max(1, share))));
}
