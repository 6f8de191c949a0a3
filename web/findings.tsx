/** The finding in words, the claims judged, the warnings, and the tables behind them. */
import { partsOf } from "../src/fit/parts.ts";
import { type Bucket, bucketLabel } from "../src/fit/points.ts";
import type { FitResult } from "../src/fit/types.ts";
import { DEFINITIONS } from "../src/report/definitions.ts";
import { attentionTitles, conventionTitle } from "../src/report/labels.ts";
import { claimInWords, leadingComparisons } from "../src/report/tables.ts";
import type { TableView } from "../src/server/api.ts";
import { Scroll } from "./controls.tsx";
import { hidden } from "./location.ts";
import { csvText, saveFile } from "./save.ts";
import { NOTHING, useBucket } from "./scaling.tsx";
import type { Study } from "./store.ts";

export function Findings({ study }: { study: Study }) {
  const results = study.results.value;
  const fit = results?.fit ?? NOTHING;
  return (
    <section aria-labelledby="findings-title">
      <h2 id="findings-title">Findings</h2>
      {results ? (
        <p class="summary">
          Laws of the runs that had finished
          {results.fitted && ` by ${results.fitted.replace("T", " ").slice(0, 16)} UTC`}.
        </p>
      ) : (
        <p class="empty">
          Laws are fitted when runs have finished: three sizes of one attention give a first one.
        </p>
      )}
      <Reading fit={fit} />
      <Claims study={study} />
      <Warnings fit={fit} />
      {results && results.tables.length > 0 && <h3>Tables</h3>}
      {results?.tables.map((table, i) => (
        <DataTable key={table.title} table={table} open={i === 0} />
      ))}
      <About study={study} />
      <h3>How to read this</h3>
      <dl class="definitions">
        {DEFINITIONS.map(([term, meaning]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** The answer, and the other parts to unfold. */
export function Reading({ fit }: { fit: FitResult }) {
  const [first, ...rest] = partsOf(fit);
  return (
    <>
      <h3>{first?.title ?? "In words"}</h3>
      {first ? (
        <Sentences all={first.sentences} />
      ) : (
        <p class="empty">There are too few finished sizes or attentions for a finding.</p>
      )}
      {rest.map(({ title, sentences }) => (
        <details key={title}>
          <summary>{title}</summary>
          <Sentences all={sentences} />
        </details>
      ))}
    </>
  );
}

export function Sentences({ all }: { all: readonly string[] }) {
  return (
    <ul class="sentences">
      {[...new Set(all)].map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

/** The claims people make about such a chart, judged in the bucket that is shown. */
export function Claims({ study }: { study: Study }) {
  const fit = study.results.value?.fit ?? NOTHING;
  const index = useBucket(study);
  const bucket: Bucket =
    index === null ? { position_start: null, position_end: null } : study.facts.value.buckets[index]!;
  const comparisons = leadingComparisons(fit, bucket).filter(({ other }) => !hidden.value.has(other));
  if (comparisons.length === 0) return null;
  const titles = attentionTitles(study.facts.value.attentions.map(({ label }) => label));
  return (
    <>
      <h3>Claims, judged</h3>
      {comparisons.map((comparison) => {
        const { other, baseline, convention } = comparison;
        const caption = `${titles.get(other) ?? other} against ${(titles.get(baseline) ?? baseline).toLowerCase()}, positions ${bucketLabel(comparison)}, by ${conventionTitle(convention)}`;
        return (
          <Scroll label={caption} key={`${other} ${baseline}`}>
            <table class="claims">
              <caption>{caption}</caption>
              <thead>
                <tr>
                  <th scope="col">claim</th>
                  <th scope="col">judgement</th>
                  <th scope="col">because</th>
                </tr>
              </thead>
              <tbody>
                {comparison.claims.map((claim) => (
                  <tr key={claim.claim}>
                    <th scope="row">{claimInWords(claim.claim, comparison, titles)}</th>
                    <td class={claim.judgement}>{claim.judgement}</td>
                    <td>{claim.because}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        );
      })}
    </>
  );
}

export function Warnings({ fit }: { fit: FitResult }) {
  if (fit.warnings.length === 0) return null;
  return (
    <>
      <h3>Warnings</h3>
      <ul class="warnings">
        {[...new Set(fit.warnings)].map((warning) => (
          <li key={warning}>{warning}</li>
        ))}
      </ul>
    </>
  );
}

export function DataTable({ table: { title, columns, rows }, open }: { table: TableView; open: boolean }) {
  const className = (i: number) => (columns[i]!.align === "right" ? "number" : "");
  const save = () => {
    const name = title
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .slice(0, 60);
    saveFile(`${name}.csv`, csvText([columns.map((column) => column.title), ...rows]), "text/csv");
  };
  return (
    <details open={open}>
      <summary>{title}</summary>
      <Scroll label={title}>
        <table>
          <thead>
            <tr>
              {columns.map((column, i) => (
                <th key={column.title} scope="col" class={className(i)}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.join("\n")}>
                {row.map((cell, i) =>
                  i === 0 ? (
                    <th key={columns[i]!.title} scope="row" class={className(i)}>
                      {cell}
                    </th>
                  ) : (
                    <td key={columns[i]!.title} class={className(i)}>
                      {cell}
                    </td>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <p class="exports">
        Save as{" "}
        <button type="button" onClick={save}>
          CSV
        </button>
      </p>
    </details>
  );
}

/** What the study is, and the command that makes it again. */
function About({ study }: { study: Study }) {
  const { config, name } = study.facts.value;
  if (!config) return null;
  const facts: [string, string][] = [
    ["Study", name],
    ["Corpus", config.source],
    ["Tokenizer", config.tokenizer],
    ["Context", `${config.context} tokens`],
    ["Learning rate and batch", config.rule],
    ["Hardware", config.hardware],
    ["Version", config.version],
    ["Made", config.created.replace("T", " ").slice(0, 16)],
  ];
  return (
    <>
      <h3>What this is</h3>
      <dl class="facts">
        {facts.map(([term, value]) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <pre>
        <code>{config.command}</code>
      </pre>
    </>
  );
}
