/** How MoBA routes: which blocks each query of a text chose, computed in the page by a model of the study. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { parseAttention } from "../../src/attention/attention.ts";
import { attendedPairs, causalPairs } from "../../src/attention/pairs.ts";
import type { Tokenizer } from "../../src/data/tokenizer.ts";
import type { LayerAttention } from "../../src/model/config.ts";
import { attentionColours, formatFixed, formatNumber } from "../../src/report/labels.ts";
import { ChartFrame } from "../chart-frame.tsx";
import { Choice, Scroll } from "../controls.tsx";
import { choice, param } from "../location.ts";
import { connection, type Study } from "../store.ts";
import { shade } from "../theme.ts";
import {
  CHOSEN,
  costChart,
  headScores,
  mean,
  OWN,
  PASSED,
  routingChart,
  scoreScale,
  shadeOf,
} from "./charts.ts";
import { COSTS, Reading } from "./reading.tsx";
import { labelsOf, type Passage, type QueryRouting, queryRouting, type RoutedModel } from "./routed-model.ts";
import { type Candidate, listModels, type Opened, openModel, usualModel } from "./source.ts";

/** Read where a study has no held-out text: Abraham Lincoln, 19 November 1863. */
const GETTYSBURG =
  "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that field, as a final resting place for those who here gave their lives that that nation might live.";

/** Earlier blocks listed for a query. */
const LISTED = 10;
/** Milliseconds without a change of the text before it is read. */
const PAUSE = 300;

export function Moba({ study }: { study: Study }) {
  const [candidates, setCandidates] = useState<readonly Candidate[] | null>(null);
  const [opened, setOpened] = useState<Opened | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const finished = study.runs.value.filter(({ state }) => state === "finished").length;
  useEffect(() => {
    listModels(study).then(setCandidates, (error: Error) => setProblem(error.message));
  }, [study, finished]);
  const wanted = param("model");
  const usual = candidates ? usualModel(candidates)?.run : undefined;
  const run = candidates?.find((one) => one.run === wanted)?.run ?? usual ?? null;
  useEffect(() => {
    if (run === null) return;
    let current = true;
    let model: RoutedModel | null = null;
    setProblem(null);
    openModel(study, run).then(
      (now) => {
        model = now.model;
        if (current) setOpened(now);
        else model.close();
      },
      (error: Error) => current && setProblem(`${run}: ${error.message}`),
    );
    return () => {
      current = false;
      setOpened(null);
      model?.close();
    };
  }, [study, run]);
  return (
    <section class="moba" aria-labelledby="moba-title">
      <h2 id="moba-title">How MoBA routes</h2>
      <Definition />
      {candidates && candidates.length > 0 && (
        <div class="controls">
          <Choice
            label="Model"
            name="model"
            list
            values={candidates.map((one) => ({ value: one.run, title: one.run }))}
            value={run!}
            usual={usual}
          />
        </div>
      )}
      {problem !== null && (
        <p class="failure" role="alert">
          {problem}
        </p>
      )}
      {candidates?.length === 0 && <p class="empty">{without(study)}</p>}
      {opened ? (
        <Explorer key={run} study={study} opened={opened} />
      ) : (
        run !== null && problem === null && <p class="empty">Reading the model.</p>
      )}
    </section>
  );
}

function without(study: Study): string {
  if (connection.value !== "frozen") {
    return "No run of this study has a checkpoint of at most 50 MB yet.";
  }
  return study.facts.value.config === null
    ? "A curves table has no models to compute with."
    : "This report carries no model: the study has no checkpoint smaller than 2 MB. Where it has larger ones, mobalab serve shows them.";
}

function Definition() {
  return (
    <>
      <p>
        MoBA cuts the keys of a document into blocks of <i>B</i> tokens, counted from its first token. A query
        attends to <i>k</i> blocks: always to its own, as far as the query itself, and to the <i>k</i> − 1
        earlier blocks with the largest gate score. The gate score is the inner product, unscaled, of the
        query with the mean of the block's keys, both after rotation by position. Of equal scores the lower
        block wins.
      </p>
      <p>
        With <i>k</i> = 1 a query sees only its own block; with <i>k</i> at least the number of blocks this is
        full attention. The choice is made anew for every query, head and layer, and no gradient flows through
        it. The last, partial block is only ever somebody's own.
      </p>
    </>
  );
}

interface Computed {
  readonly routed: Passage;
  readonly full: Passage;
  readonly attention: LayerAttention;
  readonly blockSize: number;
  readonly milliseconds: number;
}

function Explorer({ study, opened }: { study: Study; opened: Opened }) {
  const { model, view } = opened;
  const { tokenizer, most, config } = model;
  const samples = useMemo(
    () => view.samples.map(({ name, tokens }) => ({ name, text: textOf(tokenizer, tokens) })),
    [view, tokenizer],
  );
  const [text, setText] = useState(samples[0]?.text ?? GETTYSBURG);
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const all = useMemo(() => tokenizer.encode(settled), [settled, tokenizer]);
  const tokens = useMemo(() => all.subarray(0, most), [all, most]);

  const trained = model.attention.find(({ kind }) => kind !== "full");
  const usual =
    trained && trained.kind !== "full"
      ? trained
      : { blockSize: Math.max(1, 2 ** Math.floor(Math.log2(most / 16))), topK: 3 };
  const sizes = blockSizes(most, usual.blockSize);
  const tops = [...new Set([1, 2, 3, 4, 6, 8, usual.topK])].sort((a, b) => a - b);
  const blockSize = chosenNumber("block", sizes, usual.blockSize);
  const topK = chosenNumber("k", tops, usual.topK);
  const layer = chosenNumber("layer", range(config.layers, 1), 1) - 1;
  const head = chosenNumber("head", range(config.heads, 1), 1) - 1;

  const [computed, setComputed] = useState<Computed | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const fullOf = useRef<{ tokens: Int32Array; passage: Passage } | null>(null);
  useEffect(() => {
    if (tokens.length < 2) return;
    setBusy(true);
    // After the page has said that it computes.
    const timer = setTimeout(() => {
      try {
        const start = performance.now();
        const attention = model.attentionWith(blockSize, topK);
        const full = attention.map(() => parseAttention("full"));
        if (fullOf.current?.tokens !== tokens) {
          fullOf.current = { tokens, passage: model.read(tokens, full) };
        }
        const routed = model.read(tokens, attention);
        const milliseconds = performance.now() - start;
        setComputed({ routed, full: fullOf.current.passage, attention, blockSize, milliseconds });
        setFailure(null);
      } catch (error) {
        setFailure((error as Error).message);
      }
      setBusy(false);
    }, 20);
    return () => clearTimeout(timer);
  }, [model, tokens, blockSize, topK]);
  const numbers = (of: readonly number[], usualOne?: number) =>
    of.map((n) => ({ value: String(n), title: n === usualOne ? `${n} (trained)` : String(n) }));
  return (
    <>
      <div class="words">
        <label for="moba-text">Text</label>
        <textarea
          id="moba-text"
          rows={4}
          value={text}
          spellcheck={false}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <p class="samples">
          {samples.length > 0 && "Held-out text: "}
          {samples.map((sample, i) => (
            <button type="button" key={sample.name} title={sample.name} onClick={() => setText(sample.text)}>
              Sample {i + 1}
            </button>
          ))}
          <button type="button" onClick={() => setText(GETTYSBURG)}>
            Gettysburg Address
          </button>
        </p>
      </div>
      <div class="controls">
        <Choice
          label="Layer"
          name="layer"
          list
          values={numbers(range(config.layers, 1))}
          value={`${layer + 1}`}
        />
        <Choice
          label="Head"
          name="head"
          list
          values={numbers(range(config.heads, 1))}
          value={`${head + 1}`}
        />
        <Choice
          label="Block size B"
          name="block"
          list
          values={numbers(sizes, trained && usual.blockSize)}
          value={String(blockSize)}
          usual={String(usual.blockSize)}
        />
        <Choice
          label="Top-k"
          name="k"
          list
          values={numbers(tops, trained && usual.topK)}
          value={String(topK)}
          usual={String(usual.topK)}
        />
      </div>
      {failure !== null && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      {tokens.length < 2 ? (
        <p class="empty">Write at least two tokens.</p>
      ) : computed ? (
        <div class={busy ? "stale" : ""} aria-busy={busy}>
          <Shown
            study={study}
            opened={opened}
            computed={computed}
            layer={layer}
            head={head}
            cut={all.length - tokens.length}
          />
        </div>
      ) : (
        <p class="empty">Computing.</p>
      )}
    </>
  );
}

function Shown(props: {
  study: Study;
  opened: Opened;
  computed: Computed;
  layer: number;
  head: number;
  cut: number;
}) {
  const { study, opened, computed, layer, head, cut } = props;
  const { routed, full, attention, blockSize, milliseconds } = computed;
  const { tokenizer, config } = opened.model;
  const { tokens } = routed;
  const T = tokens.length;
  const [asked, choose] = useState(Number.POSITIVE_INFINITY);
  // At first the last query of a whole block: it has the most to choose from.
  const query = asked < T ? asked : Math.max(0, Math.floor(T / blockSize) * blockSize - 1);
  const pieces = useMemo(() => piecesOf(tokenizer, tokens), [tokenizer, tokens]);
  const texts = useMemo(() => pieces.map((piece, i) => nameOf(piece, tokenizer, tokens[i])), [pieces]);
  const costs = useMemo(
    () => Float32Array.from(tokens, (_, i) => (i === 0 ? 0 : routed.losses[i - 1] - full.losses[i - 1])),
    [routed, full],
  );
  const showsCosts = choice("colours", ["blocks", "costs"]) === "costs";
  const routing = queryRouting(routed.layers[layer], config.heads, head, query, blockSize);
  const label = labelsOf(attention);
  const colours = colourOf(study, label);
  const lines = [
    { title: `routed, ${label}`, colour: colours.routed, passage: routed },
    { title: "full attention", colour: colours.full, passage: full },
  ];
  const attended =
    attention.reduce((sum, one) => sum + attendedPairs(one, T), 0) / (attention.length * causalPairs(T));
  const difference = mean(routed.losses) - mean(full.losses);
  const input = { passage: routed, layer, heads: config.heads, head, blockSize, texts };
  return (
    <>
      <p class="figures">
        <output>{T}</output> tokens{cut > 0 && ` (the first; ${cut} more are not read)`}.{" "}
        <output>{formatFixed(100 * attended, 1)} %</output> of causal pairs attended, all layers and heads.
        Loss <output>{formatFixed(mean(routed.losses), 4)}</output> nats per token routed,{" "}
        <output>{formatFixed(mean(full.losses), 4)}</output> with full attention and the same weights: routing
        changes it by <output>{signed(difference)}</output> here.{" "}
        <span class="faint">
          Computed in this page in {Math.round(milliseconds)} ms by the kernels that train on a CPU, on one
          thread.
        </span>
      </p>
      <ChartFrame
        draw={(width) => routingChart(input, width)}
        inputs={[routed, layer, head, blockSize, texts]}
        caption={`Each row is a query, each column a block of keys. ${shadeWords(routed, layer)} Above the diagonal lies what a query cannot see.`}
        empty="Nothing to draw."
        onPoint={(row) => choose(row.y)}
      />
      <h3>One query</h3>
      <div class="controls">
        <label class="control">
          Query{" "}
          <input
            type="number"
            min={0}
            max={T - 1}
            value={query}
            onInput={(event) => {
              const { valueAsNumber: to } = event.currentTarget;
              if (Number.isInteger(to) && to >= 0 && to < T) choose(to);
            }}
          />
        </label>
        <Choice
          label="Colours"
          name="colours"
          values={[
            { value: "blocks", title: "blocks" },
            { value: "costs", title: "what routing costs" },
          ]}
          value={showsCosts ? "costs" : "blocks"}
        />
        <Key costs={showsCosts} />
      </div>
      <div class="query-view">
        <Reading
          pieces={pieces}
          blockSize={blockSize}
          query={query}
          routing={routing}
          costs={showsCosts ? costs : null}
          choose={choose}
        />
        <Choices
          routed={routed}
          full={full}
          routing={routing}
          scale={useMemo(
            () => scoreScale(headScores(routed.layers[layer], config.heads, head)),
            [routed, layer, head],
          )}
          query={query}
          texts={texts}
          pieces={pieces}
          blockSize={blockSize}
        />
      </div>
      <h3>What routing costs on this text</h3>
      <ChartFrame
        draw={(width) => costChart(lines, blockSize, width)}
        inputs={[routed, full, blockSize]}
        caption="Mean loss of the tokens predicted from each block. The weights are the same in both; they were trained with the run's own attention, so a lower loss with full attention is not what training with it would give."
        empty="Nothing to draw."
      />
    </>
  );
}

function Choices(props: {
  routed: Passage;
  full: Passage;
  routing: QueryRouting;
  scale: (score: number) => number;
  query: number;
  texts: readonly string[];
  pieces: readonly string[];
  blockSize: number;
}) {
  const { routed, full, routing, scale, query, texts, pieces, blockSize } = props;
  const scored = routing.earlier.some(({ rank }) => rank > 0);
  const order = routing.earlier
    .map((one, block) => ({ ...one, block }))
    .sort((a, b) => Number(b.chosen) - Number(a.chosen) || a.rank - b.rank || a.block - b.block);
  const snippet = (block: number) => {
    const start = block * blockSize;
    return pieces
      .slice(start, start + Math.min(blockSize, 32))
      .join("")
      .slice(0, 32);
  };
  const known = query < routed.losses.length;
  return (
    <div class="choices">
      <p>
        Query {query}, <b>{texts[query]}</b>, in block {routing.own}.{" "}
        {known && (
          <>
            Predicting <b>{texts[query + 1]}</b> costs <output>{formatFixed(routed.losses[query], 3)}</output>{" "}
            nats routed, <output>{formatFixed(full.losses[query], 3)}</output> with full attention (
            <output>{signed(routed.losses[query] - full.losses[query])}</output>).
          </>
        )}
      </p>
      {routing.own === 0 ? (
        <p class="empty">There is no earlier block to choose.</p>
      ) : (
        <Scroll label="Earlier blocks of this query">
          <table>
            <caption>
              {scored
                ? "Earlier blocks by gate score"
                : "Earlier blocks: this layer attends without gate scores"}
            </caption>
            <thead>
              <tr>
                <th scope="col">block</th>
                {scored && (
                  <>
                    <th scope="col" class="number">
                      rank
                    </th>
                    <th scope="col" class="number">
                      score
                    </th>
                  </>
                )}
                <th scope="col">chosen</th>
                <th scope="col">begins with</th>
              </tr>
            </thead>
            <tbody>
              {order.slice(0, LISTED).map(({ block, chosen, score, rank }) => (
                <tr key={block} class={chosen ? "taken" : ""}>
                  <th scope="row" class="number">
                    <span
                      class="swatch square"
                      style={{ background: shade(shadeOf(chosen, scale(score))) }}
                    />
                    {block}
                  </th>
                  {scored && (
                    <>
                      <td class="number">{rank}</td>
                      <td class="number">{formatNumber(score, 4)}</td>
                    </>
                  )}
                  <td>{chosen ? "yes" : "no"}</td>
                  <td class="snippet">{snippet(block)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {order.length > LISTED && (
        <p class="empty">
          {order.length - LISTED} more{scored && " rank lower"}.
        </p>
      )}
    </div>
  );
}

function Key({ costs }: { costs: boolean }) {
  const entries = costs
    ? [
        [CHOSEN, `dearer with routing, by ${COSTS.shown} nats or more (underlined: ${COSTS.strong})`],
        [OWN, "cheaper"],
      ]
    : [
        [OWN, "own block"],
        [CHOSEN, "chosen"],
        [PASSED, "not chosen"],
      ];
  return (
    <p class="key">
      {entries.map(([colour, words]) => (
        <span key={words}>
          <span class="swatch square" style={{ background: shade(colour) }} />
          {words}
        </span>
      ))}
    </p>
  );
}

function shadeWords({ layers }: Passage, layer: number): string {
  const { attention, scoredBlocks } = layers[layer];
  if (attention.kind === "full") return "This layer attends fully: every earlier token.";
  if (scoredBlocks === 0) {
    return attention.kind === "moba"
      ? "With k = 1 no gate score is computed."
      : "This gate is fixed by position; no score is computed.";
  }
  const shared = attention.kind === "moba" && attention.sharedGate;
  return `Darker (on a dark page, brighter) is a higher gate score, from the lowest to the highest of this head.${shared ? " Heads of a key/value group share one choice, scored with the sum of their queries." : ""}`;
}

function colourOf(study: Study, label: string): { routed: string; full: string } {
  const known = study.facts.value.attentions;
  const made = attentionColours(["full", label]);
  const find = (one: string) => known.find((attention) => attention.label === one)?.colour;
  const routed =
    find(label) ?? (label.startsWith("moba") ? attentionColours(["moba"]).get("moba")! : made.get(label)!);
  return { routed, full: find("full") ?? made.get("full")! };
}

function textOf(tokenizer: Tokenizer, tokens: ArrayLike<number>): string {
  return new TextDecoder().decode(tokenizer.decode(tokens));
}

/** Each token as it stands in the text: a character of several tokens appears with the last. */
function piecesOf(tokenizer: Tokenizer, tokens: Int32Array): string[] {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return Array.from(tokens, (token) => decoder.decode(tokenizer.decode([token]), { stream: true }));
}

/** A token by itself, with its white space seen. */
function nameOf(piece: string, tokenizer: Tokenizer, token: number): string {
  if (piece === "" || piece.includes("\ufffd")) {
    return Array.from(tokenizer.decode([token]), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  return `“${piece.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥")}”`;
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${formatFixed(Math.abs(value), 4)}`;
}

const range = (length: number, first: number) => Array.from({ length }, (_, i) => i + first);

/** Powers of two that cut a text of `most` tokens into 2 to 64 blocks, and the one trained with. */
function blockSizes(most: number, usual: number): number[] {
  const sizes = range(16, 0)
    .map((power) => 2 ** power)
    .filter((size) => size >= most / 64 && size <= most / 2);
  return [...new Set([...sizes, usual])].sort((a, b) => a - b);
}

function chosenNumber(name: string, allowed: readonly number[], usual: number): number {
  const given = Number(param(name));
  return allowed.includes(given) ? given : usual;
}
