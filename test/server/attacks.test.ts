/** What hostile requests, pages, clients and names get from the server: nothing. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { InputError } from "../../src/errors.ts";
import type { Overview } from "../../src/server/api.ts";
import { type Serving, serve } from "../../src/server/serve.ts";
import { append, ask, CONFIG, exchange, makeRun, makeStudy, stepLine } from "./made.ts";

const HOSTILE = [
  "<script>alert(1)<",
  "\"><img src=x onerror='alert(1)'>",
  "line\nbreak\r\n\r\nHTTP",
  "\u202eevil\u2066\u0007",
  "__proto__",
  "%2e%2e%2f",
  "a b&c=d;e#f?g",
  "x".repeat(250),
];

const folder = mkdtempSync(join(tmpdir(), "mobalab-attacks-"));
const study = join(folder, "study");
const PORT = { open: 0, token: 0 };
const TOKEN = "a-token-of-this-test";
let open: Serving;
let locked: Serving;

beforeAll(async () => {
  writeFileSync(join(folder, "secret.json"), "SECRET");
  makeStudy(study, "<b>name</b>");
  for (const name of HOSTILE) makeRun(study, name, 3, { ...CONFIG, model: name });
  open = await serve({ folders: [study], port: 0 });
  locked = await serve({ folders: [study], port: 0, host: "0.0.0.0", token: TOKEN });
  PORT.open = Number(new URL(open.url).port);
  PORT.token = Number(new URL(locked.url).port);
});
afterAll(async () => {
  await open.close();
  await locked.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("paths and parameters", () => {
  const UP = [
    "..",
    "../..",
    "../../secret.json",
    "../secret.json",
    "/etc/passwd",
    "..\\..\\secret.json",
    ".",
  ];
  const SPELLINGS = [
    (path: string) => path,
    (path: string) => encodeURIComponent(path).replaceAll(".", "%2e"),
    (path: string) => encodeURIComponent(encodeURIComponent(path)),
    (path: string) => path.replaceAll("/", "%c0%af"),
    (path: string) => `${path}%00.json`,
  ];

  it.each(UP)("lead nowhere with %s in them", async (up) => {
    for (const spell of SPELLINGS) {
      const path = spell(up);
      for (const url of [
        `/${path}`,
        `/assets/${path}`,
        `/api/${path}`,
        `/api/studies/${path}/metrics`,
        `/api/studies/${path}/results`,
        `/api/studies/study/${path}`,
        `/api/studies/study/metrics?run=${path}`,
        `/api/studies/study/metrics?points=${path}`,
        `/api/studies/study/metrics?run=a&from=${path}`,
        `/api/studies/study/metrics?run=a&to=${path}`,
      ]) {
        const { status, body } = await ask(PORT.open, url);
        // An address is read as browsers write it: `/.` is `/`.
        const { pathname } = new URL(url, "http://localhost");
        if (pathname !== "/" && pathname !== "/api/studies") expect([400, 404]).toContain(status);
        expect(body).not.toContain("SECRET");
        expect(body).not.toContain("root:");
      }
    }
  });

  it("are refused with a sentence when they are no numbers of the range", async () => {
    for (const query of [
      "points=1",
      "points=-5",
      "points=1e9",
      "points=",
      "points=20001",
      "run=r&from=-1",
      "run=r&to=x",
    ]) {
      const { status, body, headers } = await ask(PORT.open, `/api/studies/study/metrics?${query}`);
      expect(status).toBe(400);
      expect(JSON.parse(body).error).toMatch(/points is from 2 to 20000/);
      expect(headers["content-type"]).toMatch(/^application\/json/);
    }
  });

  it("of an event stream are no more than a cursor", async () => {
    const injected = encodeURIComponent("x\n\nevent: run\ndata: {}\n\n");
    const text = await exchange(
      PORT.open,
      `GET /api/events?cursor=${injected} HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      2000,
    );
    expect(text).toContain("event: reset");
    expect(text).not.toContain("event: run");
  });
});

describe("names", () => {
  it("that end before they begin hold nothing", async () => {
    const run = encodeURIComponent("__proto__");
    const { body } = await ask(PORT.open, `/api/studies/study/metrics?run=${run}&from=3&to=1`);
    expect(JSON.parse(body).runs[0]).toMatchObject({ recorded: 0, step: [] });
  });

  it("come as JSON, and stay what they are", async () => {
    const { body, headers } = await ask(PORT.open, "/api/studies");
    expect(headers["content-type"]).toBe("application/json; charset=utf-8");
    expect(headers["x-content-type-options"]).toBe("nosniff");
    const overview = JSON.parse(body) as Overview;
    expect(overview.studies[0].name).toBe("<b>name</b>");
    expect(overview.studies[0].runs.map((run) => run.id).sort()).toEqual([...HOSTILE].sort());
    expect(Object.prototype).not.toHaveProperty("id");
  });

  it("are ids that find their run", async () => {
    await allRead();
    for (const name of HOSTILE) {
      const path = `/api/studies/study/metrics?run=${encodeURIComponent(name)}`;
      const { status, body } = await ask(PORT.open, path);
      expect(status).toBe(200);
      expect(JSON.parse(body).runs).toMatchObject([{ run: name, step: [1, 2, 3] }]);
    }
  });

  it("end no line of an event stream early", async () => {
    const response = await fetch(`${open.url}api/events`);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    append(join(study, "runs", HOSTILE[2]), "metrics.jsonl", stepLine(4));
    let text = "";
    while (!text.includes("event: run")) text += (await reader.read()).value;
    await reader.cancel();
    for (const line of text.trimEnd().split("\n"))
      expect(line).toMatch(/^$|^(id|event|data|retry): |^: here$/);
  });
});

async function allRead(): Promise<void> {
  for (;;) {
    const { studies } = JSON.parse((await ask(PORT.open, "/api/studies")).body) as Overview;
    if (!studies[0].loading) return;
  }
}

describe("other sites", () => {
  it("get nothing: foreign origins, also those that look alike", async () => {
    for (const origin of [
      "https://evil.example",
      "null",
      "http://localhost",
      `http://127.0.0.1:${PORT.open}.evil.example`,
      `http://localhost:${PORT.open}`,
      "file://",
    ]) {
      const { status, headers, body } = await ask(PORT.open, "/api/studies", { Origin: origin });
      expect(status).toBe(403);
      expect(headers).not.toHaveProperty("access-control-allow-origin");
      expect(body).not.toContain("runs");
    }
    const own = await ask(PORT.open, "/api/studies", { Origin: `http://127.0.0.1:${PORT.open}` });
    expect(own.status).toBe(200);
    expect(own.headers).not.toHaveProperty("access-control-allow-origin");
  });

  it("cannot embed or fetch, only lead a person here", async () => {
    const of = (site: string, mode: string, dest: string, path = "/api/studies") =>
      ask(PORT.open, path, { "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest });
    expect((await of("cross-site", "no-cors", "script")).status).toBe(403);
    expect((await of("same-site", "cors", "empty")).status).toBe(403);
    expect((await of("cross-site", "navigate", "iframe", "/")).status).toBe(403);
    expect((await of("cross-site", "navigate", "document", "/")).status).not.toBe(403);
    expect((await of("same-origin", "cors", "empty")).status).toBe(200);
  });

  it("cannot give this address another name", async () => {
    for (const host of [
      "evil.example",
      `evil.example:${PORT.open}`,
      "127.0.0.1.evil.example",
      "10.1.2.3",
      "",
      "a b",
      "[::1",
      "localhost@evil.example",
    ]) {
      expect([400, 421]).toContain((await ask(PORT.open, "/api/studies", { Host: host })).status);
    }
    for (const host of ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:9"]) {
      expect((await ask(PORT.open, "/api/studies", { Host: host })).status).toBe(200);
    }
    const none = await exchange(PORT.open, "GET /api/studies HTTP/1.1\r\nConnection: close\r\n\r\n");
    expect(none).toMatch(/^HTTP\/1.1 400 /);
    for (const path of [
      "//",
      "//evil.example",
      "/\\\\",
      "/\\",
      "/%",
      "/?%",
      "/#",
      "/[",
      "/api/studies/%/metrics",
    ]) {
      expect([200, 400, 404, 503]).toContain((await ask(PORT.open, path)).status);
      expect([303, 400, 401]).toContain((await ask(PORT.token, path)).status);
    }
    const absolute = await ask(PORT.open, `http://evil.example/api/studies`);
    expect(absolute.status).toBe(400);
  });

  it("are kept out by the headers of every answer, errors too", async () => {
    for (const path of ["/", "/api/studies", "/nothing", `/${"x".repeat(5000)}`]) {
      const { headers } = await ask(PORT.open, path);
      const policy = headers["content-security-policy"];
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain("unsafe-inline");
      expect(policy.replace("'wasm-unsafe-eval'", "")).not.toContain("unsafe-eval");
      expect(headers).toMatchObject({
        ...{ "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" },
        ...{ "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin" },
      });
    }
  });
});

describe("requests out of measure", () => {
  it("are refused: methods, addresses, headers, bodies", async () => {
    for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"]) {
      const { status, headers } = await ask(PORT.open, "/api/studies", {}, method);
      expect(status).toBe(405);
      expect(headers.allow).toBe("GET, HEAD");
    }
    expect((await ask(PORT.open, `/${"x".repeat(5000)}`)).status).toBe(414);
    expect((await ask(PORT.open, `/${"x".repeat(40_000)}`)).status).toBe(431);
    expect((await ask(PORT.open, "/", { "X-Long": "x".repeat(40_000) })).status).toBe(431);
    expect((await ask(PORT.open, "/", { "Content-Length": "1000000000" })).status).toBe(413);
    expect((await ask(PORT.open, "/", { "Transfer-Encoding": "chunked" })).status).toBe(413);
    expect(await exchange(PORT.open, "nonsense\r\n\r\n")).toMatch(/^HTTP\/1.1 400 /);
    const twice = `GET / HTTP/1.1\r\nHost: 127.0.0.1:${PORT.open}\r\nHOST: evil.example\r\nConnection: close\r\n\r\n`;
    expect(await exchange(PORT.open, twice)).toMatch(/^HTTP\/1.1 400 [\s\S]*more than one Host header/);
    expect((await ask(PORT.open, "/api/studies", {}, "HEAD")).body).toBe("");
    expect((await ask(PORT.open, "/api/studies")).status).toBe(200);
  });

  it("sent byte by byte are cut off, while others are answered", async () => {
    const began = performance.now();
    const slow = connect(PORT.open, "127.0.0.1");
    slow.on("error", () => {});
    slow.write("GET / HTTP/1.1\r\nHost: localhost\r\n");
    const drip = setInterval(() => slow.writable && slow.write("X-A: b\r\n"), 200);
    const ended = new Promise((resolve) => slow.on("close", resolve));
    slow.resume();
    // A browser's spare connection: an answer on it would be taken for that of the request it is used for next.
    const spare = exchange(PORT.open, "", 20_000);
    expect((await ask(PORT.open, "/api/studies")).status).toBe(200);
    await ended;
    expect(await spare).toBe("");
    clearInterval(drip);
    expect(performance.now() - began).toBeLessThan(15_000);
  }, 30_000);

  it("a thousand in one packet get one answer", async () => {
    const one = "GET /api/studies/study/metrics?points=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const text = await exchange(PORT.open, one.repeat(1000));
    expect(text.match(/HTTP\/1.1 200 /g)).toHaveLength(1);
    expect(text).toMatch(/HTTP\/1.1 503 [\s\S]*one request at a time/);
    const events = await exchange(
      PORT.open,
      `GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n${one.repeat(9)}`,
      2000,
    );
    expect(events).toMatch(/event: reset|retry/);
    expect(events).not.toContain('"runs"');
    // One after the other on a connection is what a connection is kept for.
    expect((await ask(PORT.open, "/api/studies")).status).toBe(200);
  });

  it("for large answers that nobody takes are refused past a bound, and answered again after it", async () => {
    const large = join(folder, "large");
    makeStudy(large);
    for (const name of ["a", "b", "c", "d", "e"]) {
      const run = makeRun(large, name, 0);
      append(run, "metrics.jsonl", Array.from({ length: 20_000 }, (_, i) => stepLine(i + 1)).join(""));
    }
    const server = await serve({ folders: [large], port: 0 });
    const port = Number(new URL(server.url).port);
    while (server.library.overview().studies[0].loading) await new Promise((r) => setTimeout(r, 20));
    const request = "GET /api/studies/large/metrics?points=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const before = process.memoryUsage().rss;
    const first: string[] = [];
    const clients = Array.from({ length: 40 }, () => {
      const client = connect(port, "127.0.0.1", () => client.write(request));
      client.on("error", () => {});
      // Its beginning is read, and no more.
      client.once("data", (data) => {
        first.push(data.toString("latin1", 0, 12));
        client.pause();
      });
      return client;
    });
    while (first.length < clients.length) await new Promise((r) => setTimeout(r, 20));
    expect(process.memoryUsage().rss - before).toBeLessThan(300e6);
    expect(new Set(first)).toEqual(new Set(["HTTP/1.1 200", "HTTP/1.1 503"]));
    for (const client of clients) client.destroy();
    while ((await ask(port, "/api/studies")).status !== 200) await new Promise((r) => setTimeout(r, 20));
    await server.close();
  }, 60_000);

  it("for events by a client that does not read them cost a bounded buffer", async () => {
    const reader = connect(PORT.open, "127.0.0.1");
    reader.on("error", () => {});
    reader.write("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await new Promise((resolve) => reader.once("data", resolve));
    reader.pause();
    const ended = new Promise((resolve) => reader.on("close", resolve));
    const { journal } = open.library;
    const run = open.library.overview().studies[0].runs[0];
    const before = process.memoryUsage().rss;
    // 64 MB of changes that nobody takes.
    for (let i = 0; i < 640; i++) {
      journal.add({ kind: "run", study: "study", run: { ...run, message: "x".repeat(100_000) } });
      if (i % 16 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(150e6);
    reader.resume();
    await ended;
  });
});

describe("an address other than loopback", () => {
  const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });

  it("answers nothing without the token", async () => {
    for (const path of [
      "/",
      "/api/studies",
      "/api/events",
      "/nothing",
      "/?token=",
      "/?token=wrong-token-of-this",
      `/api/studies?token=${TOKEN}`,
    ]) {
      const { status, body } = await ask(PORT.token, path);
      expect(status).toBe(401);
      expect(JSON.parse(body).error).toMatch(/open the address that mobalab serve printed/);
    }
    for (const token of ["", "x", `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase()]) {
      expect((await ask(PORT.token, "/api/studies", bearer(token))).status).toBe(401);
      expect(
        (await ask(PORT.token, "/api/studies", { Cookie: `mobalab-${PORT.token}=${token}` })).status,
      ).toBe(401);
    }
    expect((await ask(PORT.token, "/api/studies", bearer(TOKEN))).status).toBe(200);
  });

  it("keeps the token in a cookie that scripts and other sites do not get", async () => {
    expect(locked.url).toBe(`http://${hostname()}:${PORT.token}/?token=${TOKEN}`);
    const { status, headers } = await ask(PORT.token, `/?token=${TOKEN}`);
    expect(status).toBe(303);
    expect(headers.location).toBe("./");
    expect(headers["set-cookie"]).toBe(`mobalab-${PORT.token}=${TOKEN}; HttpOnly; SameSite=Lax; Path=/`);
    const cookie = { Cookie: `other=1; mobalab-${PORT.token}=${TOKEN}` };
    expect((await ask(PORT.token, "/api/studies", cookie)).status).toBe(200);
    const foreign = await ask(PORT.token, "/api/studies", { ...cookie, Origin: "https://evil.example" });
    expect(foreign.status).toBe(403);
    expect((await ask(PORT.token, "/api/studies", { ...cookie, Host: "evil.example" })).status).toBe(421);
    expect((await ask(PORT.token, "/api/studies", { ...cookie, Host: "10.1.2.3:80" })).status).toBe(200);
  });

  it("gets a token of its own when none is given, and no weak one", async () => {
    const other = await serve({ folders: [study], port: 0, host: "0.0.0.0" });
    const port = Number(new URL(other.url).port);
    const token = new URL(other.url).searchParams.get("token")!;
    expect(token).toMatch(/^[\w-]{32}$/);
    expect((await ask(port, "/api/studies")).status).toBe(401);
    expect((await ask(port, "/api/studies", bearer(token))).status).toBe(200);
    await other.close();
    for (const weak of ["short", "with space in it, long", "x; Path=/; Secure=no"]) {
      await expect(serve({ folders: [study], port: 0, token: weak })).rejects.toThrow(InputError);
    }
  });
});

describe("a port", () => {
  it("in use is said when it was asked for, and passed over when it was not", async () => {
    await expect(serve({ folders: [study], port: PORT.open })).rejects.toThrow(
      /is in use: give another --port/,
    );
    const first = await serve({ folders: [study] });
    const second = await serve({ folders: [study] });
    expect(new URL(first.url).port).not.toBe(new URL(second.url).port);
    await first.close();
    await second.close();
  });
});
