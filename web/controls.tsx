/** Controls that change a parameter of the view in the address. */
import type { ComponentChildren } from "preact";
import { go, hidden, toggleHidden } from "./location.ts";
import type { Study } from "./store.ts";
import { shade } from "./theme.ts";

/** A few values side by side, of which one holds. */
export function Choice<T extends string>(props: {
  label: string;
  name: string;
  values: readonly { readonly value: T; readonly title: string }[];
  value: T;
  /** What holds when the address says nothing; the first value when absent. */
  usual?: T;
  /** Further parameters that the change puts back, such as a zoom. */
  reset?: readonly string[];
  /** A list to choose from, also when there are few values. */
  list?: boolean;
}) {
  const { label, name, values, value, reset = [] } = props;
  const set = (next: string) => {
    const usual = next === (props.usual ?? values[0]!.value);
    go({ ...Object.fromEntries(reset.map((other) => [other, null])), [name]: usual ? null : next });
  };
  if (props.list || values.length > 4) {
    return (
      <label class="control">
        {label}{" "}
        <select value={value} onChange={(event) => set(event.currentTarget.value)}>
          {values.map((one) => (
            <option key={one.value} value={one.value}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
    );
  }
  return (
    <fieldset class="control">
      <legend>{label}</legend>
      {values.map((one) => (
        <label key={one.value} class={one.value === value ? "chosen" : ""}>
          <input type="radio" name={name} checked={one.value === value} onChange={() => set(one.value)} />
          {one.title}
        </label>
      ))}
    </fieldset>
  );
}

/** A part that scrolls sideways when it is narrow; it can be focused, so that the keyboard scrolls it. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard.
    <section class="scroll" tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

/** The attentions in their colours; a press hides one in every view. */
export function Legend({ study }: { study: Study }) {
  return (
    <fieldset class="attentions">
      <legend>Attention</legend>
      {study.facts.value.attentions.map(({ label, title, colour }) => (
        <button
          type="button"
          key={label}
          aria-pressed={!hidden.value.has(label)}
          onClick={() => toggleHidden(label)}
          title={label}
        >
          <span class="swatch" style={{ background: shade(colour) }} />
          {title}
        </button>
      ))}
    </fieldset>
  );
}
