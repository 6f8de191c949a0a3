/** The page: its head, the tabs and the view of the one that is chosen. */
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Legend } from "./controls.tsx";
import { Curves } from "./curves.tsx";
import { Findings } from "./findings.tsx";
import { go, TABS, type Tab, tab } from "./location.ts";
import { Moba } from "./moba/index.tsx";
import { Positions } from "./positions.tsx";
import { Runs } from "./runs.tsx";
import { Scaling } from "./scaling.tsx";
import { connection, failure, load, type Study, studies, study, version } from "./store.ts";
import { type ThemeChoice, themeChoice } from "./theme.ts";

const VIEWS: Record<Tab, { title: string; view: (props: { study: Study }) => preact.ComponentChild }> = {
  runs: { title: "Runs", view: Runs },
  scaling: { title: "Scaling", view: Scaling },
  positions: { title: "Positions", view: Positions },
  curves: { title: "Curves", view: Curves },
  findings: { title: "Findings", view: Findings },
  moba: { title: "How MoBA routes", view: Moba },
};

/** A view that fails leaves the others usable. */
class Guard extends Component<{ children: ComponentChildren }, { problem: string | null }> {
  override state = { problem: null };

  override componentDidCatch(error: Error) {
    this.setState({ problem: error.message });
  }

  override render() {
    const { problem } = this.state;
    return problem === null ? (
      this.props.children
    ) : (
      <p class="failure">This view cannot be shown: {problem}</p>
    );
  }
}

export function App() {
  const shown = study.value;
  const at = tab.value;
  const name = shown?.facts.value.name;
  useEffect(() => {
    if (shown) void load(shown);
  }, [shown, shown?.state.value]);
  useEffect(() => {
    document.title = name ? `${VIEWS[at].title}: ${name}` : "mobalab";
  }, [name, at]);
  const View = VIEWS[at].view;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("view")!.focus()}>
        Skip to the content
      </button>
      <header>
        <h1>
          <span class="mark">mobalab</span> <StudyName />
        </h1>
        <Connection />
        <Theme />
      </header>
      <Tabs />
      {shown && <Legend study={shown} />}
      <main>
        <div id="view" tabIndex={-1} role="tabpanel" aria-labelledby={`tab-${at}`}>
          {failure.value !== null && (
            <p class="failure" role="alert">
              {failure.value}
            </p>
          )}
          {shown ? (
            <Guard key={`${shown.id} ${at}`}>
              <View study={shown} />
            </Guard>
          ) : (
            <p class="empty">
              {connection.value === "live" ? "There is no study in this folder yet." : "Reading the study."}
            </p>
          )}
        </div>
      </main>
      <footer>mobalab {version.value}</footer>
    </>
  );
}

function StudyName() {
  const shown = study.value;
  if (!shown) return null;
  if (studies.value.length === 1) return <>{shown.facts.value.name}</>;
  return (
    <select
      aria-label="Study"
      value={shown.id}
      onChange={(event) =>
        go({ study: event.currentTarget.value, run: null, bucket: null, x: null, y: null, hide: null })
      }
    >
      {studies.value.map((one) => (
        <option key={one.id} value={one.id}>
          {one.facts.value.name}
          {studies.value.some((other) => other !== one && other.facts.value.name === one.facts.value.name) &&
            ` (${one.id})`}
        </option>
      ))}
    </select>
  );
}

const CONNECTION = {
  connecting: "connecting",
  live: "live",
  lost: "connection lost, trying again",
  frozen: "frozen report",
} as const;

function Connection() {
  return (
    <span class={`connection ${connection.value}`} role="status">
      {CONNECTION[connection.value]}
    </span>
  );
}

function Theme() {
  return (
    <label class="theme">
      Theme{" "}
      <select
        value={themeChoice.value}
        onChange={(event) => {
          themeChoice.value = event.currentTarget.value as ThemeChoice;
        }}
      >
        <option value="system">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </label>
  );
}

/** Arrow keys move between tabs; one of them is in the order of focus. */
function Tabs() {
  const list = useRef<HTMLDivElement>(null);
  const at = tab.value;
  // On a narrow page the tabs scroll.
  useEffect(() => {
    list.current!.querySelector(`#tab-${at}`)!.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at]);
  // A view starts at its whole range.
  const open = (name: Tab) => name !== at && go({ x: null, y: null }, name);
  const key = (event: KeyboardEvent) => {
    const here = TABS.indexOf(at);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = TABS[(to + TABS.length) % TABS.length]!;
    open(name);
    list.current!.querySelector<HTMLElement>(`#tab-${name}`)!.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" ref={list} onKeyDown={key}>
      {TABS.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          id={`tab-${name}`}
          aria-controls="view"
          aria-selected={name === at}
          tabIndex={name === at ? 0 : -1}
          onClick={() => open(name)}
        >
          {VIEWS[name].title}
        </button>
      ))}
    </div>
  );
}
