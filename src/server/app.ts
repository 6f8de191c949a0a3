/** The addresses the server answers. Ids are looked up among what is there; nothing of an address becomes a path. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { HttpBindings } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import { type Context, Hono } from "hono";
import type { Asset } from "./assets.ts";
import { MOST_READERS, sendEvents } from "./events.ts";
import type { Library } from "./library.ts";
import type { Study } from "./study.ts";

const POINTS = { usual: 500, most: 20_000 };
/** Bytes of answers that may wait for those who asked, of all connections together. */
const MOST_WAITING = 64 * 2 ** 20;

type Env = { Bindings: HttpBindings };

export function createApp(library: Library, assets: ReadonlyMap<string, Asset>): Hono<Env> {
  const app = new Hono<Env>();
  let readers = 0;
  let waiting = 0;
  app.use("/api/*", (c, next) => {
    if (waiting <= MOST_WAITING) return next();
    return Promise.resolve(refuse(c, 503, "too many answers wait for those who asked for them"));
  });
  const json = (c: Context<Env>, content: unknown): Response => {
    const body = JSON.stringify(content);
    waiting += body.length;
    (c.env.outgoing as ServerResponse).on("close", () => {
      waiting -= body.length;
    });
    return c.body(body, 200, {
      "Content-Type": "application/json; charset=utf-8",
      "Cache-Control": "no-store",
    });
  };

  app.get("/api/studies", (c) => json(c, library.overview()));
  const ofStudy = (name: string, answer: (c: Context<Env>, study: Study) => Response) => {
    app.get(`/api/studies/:study/${name}`, (c) => {
      const study = library.study(c.req.param("study"));
      return study === undefined ? refuse(c, 404, "there is no such study") : answer(c, study);
    });
  };
  ofStudy("metrics", (c, study) => {
    const points = wholeNumber(c.req.query("points"), POINTS.usual, POINTS.most);
    const from = wholeNumber(c.req.query("from"), 0);
    const to = wholeNumber(c.req.query("to"), Number.MAX_SAFE_INTEGER);
    if (points === null || points < 2 || from === null || to === null) {
      return refuse(c, 400, `points is from 2 to ${POINTS.most}, from and to are steps`);
    }
    const run = c.req.query("run");
    const metrics = study.metrics(points, run === undefined ? null : { run, from, to });
    return metrics === null ? refuse(c, 404, "there is no such run") : json(c, metrics);
  });
  ofStudy("evaluations", (c, study) => json(c, study.evaluations()));
  ofStudy("results", (c, study) => json(c, study.results()));
  ofStudy("configs", (c, study) => json(c, study.configs()));
  ofStudy("models", (c, study) => json(c, study.models()));
  const noModel = "there is no such run, or no model of it that a page can compute with";
  ofStudy("model", (c, study) => {
    const model = study.model(c.req.query("run") ?? "");
    return model === null ? refuse(c, 404, noModel) : json(c, model);
  });
  ofStudy("weights", (c, study) => {
    const weights = study.weights(c.req.query("run") ?? "");
    if (weights === null) return refuse(c, 404, noModel);
    return c.body(weights.body, 200, {
      "Content-Type": "application/octet-stream",
      "Content-Length": String(weights.size),
      "Cache-Control": "no-store",
    });
  });

  app.get("/api/events", (c) => {
    if (readers >= MOST_READERS) return refuse(c, 503, `${MOST_READERS} pages are open already`);
    const { incoming, outgoing } = c.env as { incoming: IncomingMessage; outgoing: ServerResponse };
    if (incoming.method === "HEAD") return c.body(null, 200, { "Content-Type": "text/event-stream" });
    readers++;
    outgoing.on("close", () => readers--);
    const cursor = incoming.headers["last-event-id"] ?? c.req.query("cursor") ?? null;
    sendEvents(outgoing, library.journal, Array.isArray(cursor) ? cursor[0] : cursor);
    return RESPONSE_ALREADY_SENT;
  });

  app.get("*", (c) => {
    const path = c.req.path;
    const asset = assets.get(path);
    if (asset === undefined) {
      if (path === "/")
        return c.text("The dashboard's page is not built: npm run build:web makes it.\n", 503);
      return refuse(c, 404, "there is nothing at this address");
    }
    const headers = {
      "Content-Type": asset.type,
      "Cache-Control": asset.immutable ? "public, max-age=31536000, immutable" : "no-cache",
      ETag: asset.etag,
    };
    if (c.req.header("if-none-match") === asset.etag) return c.body(null, 304, headers);
    return c.body(asset.content, 200, headers);
  });
  app.onError((_, c) => refuse(c, 500, "a fault in mobalab itself"));
  return app;
}

function refuse(c: Context, status: 400 | 404 | 500 | 503, error: string): Response {
  return c.json({ error }, status, { "Cache-Control": "no-store" });
}

/** Null when it is no whole number from 0 to `most`. */
function wholeNumber(text: string | undefined, usual: number, most = Number.MAX_SAFE_INTEGER): number | null {
  if (text === undefined) return usual;
  return /^\d{1,16}$/.test(text) && Number(text) <= most ? Number(text) : null;
}
