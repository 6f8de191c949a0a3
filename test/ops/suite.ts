/**
 * The shared op suite: every operation of a backend against the float64 reference. Independent of the runner: each
 * case throws on failure. To plug a backend in, hand `opSuite` a way to get it and run the cases in order:
 *
 *   for (const { name, run } of opSuite(() => backend)) test(name, run);
 */
import type { Backend } from "../../src/ops/contract.ts";
import { attentionCases } from "./suite/attention.ts";
import { decodeCases } from "./suite/decode.ts";
import { denseCases } from "./suite/dense.ts";
import { type Case, Harness, type SuiteOptions } from "./suite/harness.ts";
import { keyCases } from "./suite/keys.ts";
import { lossCases } from "./suite/loss.ts";
import { memoryCases } from "./suite/memory.ts";
import { refusalCases } from "./suite/refusals.ts";
import { repeatCases } from "./suite/repeat.ts";
import { routingCases } from "./suite/routing.ts";

export type { Case, SuiteOptions } from "./suite/harness.ts";
export { sampleOutputs } from "./suite/repeat.ts";

/** The cases for one backend, made when the first case runs. The last case closes it. */
export function opSuite(makeBackend: () => Backend, options: SuiteOptions = {}): Case[] {
  let harness: Harness | undefined;
  const rooms = {
    memory: memoryCases,
    dense: denseCases,
    keys: keyCases,
    routing: routingCases,
    attention: attentionCases,
    decode: decodeCases,
    loss: lossCases,
    repeat: repeatCases,
    refusals: refusalCases,
  };
  const cases: Case[] = [];
  for (const [room, make] of Object.entries(rooms)) {
    for (const { name, run } of make(options)) {
      cases.push({
        name: `${room}: ${name}`,
        run: () => run((harness ??= new Harness(makeBackend(), options))),
      });
    }
  }
  cases.push({
    name: "close: further calls throw",
    run: () => (harness ??= new Harness(makeBackend(), options)).close(),
  });
  return cases;
}
