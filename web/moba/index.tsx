/** How MoBA routes: which blocks each query of a text chose. */
import type { Study } from "../store.ts";

export function Moba(_: { study: Study }) {
  return (
    <section aria-labelledby="moba-title">
      <h2 id="moba-title">How MoBA routes</h2>
      <p class="empty">This page is being written.</p>
    </section>
  );
}
