/** The suite run on the reference itself: its cases hold for the oracle, at float64 tolerance. */
import { test } from "vitest";
import { createReferenceBackend } from "../../src/ops/reference/index.ts";
import { opSuite } from "./suite.ts";

for (const { name, run } of opSuite(createReferenceBackend, { tolerance: 1e-12 })) test(name, run);
