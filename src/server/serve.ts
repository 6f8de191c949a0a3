/** Starts and stops the HTTP server over study folders. */
import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, isIPv6, type Socket } from "node:net";
import { hostname } from "node:os";
import { getRequestListener } from "@hono/node-server";
import { InputError } from "../errors.ts";
import { createApp } from "./app.ts";
import { readAssets } from "./assets.ts";
import {
  type Access,
  cookieName,
  isLoopback,
  mayRead,
  type Refusal,
  refusalOf,
  sameToken,
  secure,
} from "./guard.ts";
import { Library } from "./library.ts";

export const DEFAULT_PORT = 7100;
/** Ports tried after the default one. */
const NEXT_PORTS = 20;

export interface ServeOptions {
  /** Each a study, or a folder of studies. */
  readonly folders: readonly string[];
  /** Default: loopback. Any other address needs a token, which is made up when there is none. */
  readonly host?: string;
  /** 0: any free one. Default: 7100 or the next free one. */
  readonly port?: number;
  readonly token?: string;
}

export interface Serving {
  /** To be opened; it holds the token. */
  readonly url: string;
  readonly studies: number;
  /** Resolves when what was there at the start has been read. */
  readonly library: Library;
  close(): Promise<void>;
}

/** Throws `InputError` when a folder holds no study or the address cannot be had. */
export async function serve(options: ServeOptions): Promise<Serving> {
  const host = options.host ?? "127.0.0.1";
  const token = options.token ?? (isLoopback(host) ? null : randomBytes(24).toString("base64url"));
  if (token !== null && !/^[\w-]{16,200}$/.test(token)) {
    throw new InputError("--token: expected 16 to 200 letters, digits, - or _");
  }
  const library = new Library(options.folders);
  const access: Access = { host, token };
  const app = createApp(library, readAssets());
  const answer = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  /** Connections with an answer on its way. */
  const answering = new Set<Socket>();
  const server = createServer(
    {
      maxHeaderSize: 16_384,
      // A request is one small packet: a client that takes longer holds a connection and no more.
      headersTimeout: 5000,
      requestTimeout: 10_000,
      connectionsCheckingInterval: 1000,
      keepAliveTimeout: 10_000,
    },
    (request, response) => {
      secure(response);
      const { socket } = request;
      // A thousand requests in one packet would have a thousand answers wait in memory; browsers send none of these.
      if (answering.has(socket)) {
        refuse(response, { status: 503, error: "one request at a time on a connection" });
        return;
      }
      answering.add(socket);
      response.on("close", () => answering.delete(socket));
      const refusal = refusalOf(request, access) ?? entry(request, response, access);
      if (refusal === "answered") return;
      if (refusal !== null) refuse(response, refusal);
      else Promise.resolve(answer(request, response)).catch(() => response.destroy());
    },
  );
  server.maxConnections = 256;
  // Of silence in both directions: someone who does not read an answer. Events have their own sign of life.
  server.timeout = 30_000;
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    // Too slow, or a spare connection of a browser, which would take an answer for that of its next request.
    if (error.code === "ERR_HTTP_REQUEST_TIMEOUT") {
      socket.destroy();
      return;
    }
    const status =
      error.code === "HPE_HEADER_OVERFLOW" ? "431 Request Header Fields Too Large" : "400 Bad Request";
    if (socket.writable) socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    else socket.destroy();
  });
  try {
    await listen(server, host, options.port);
  } catch (error) {
    library.close();
    throw error;
  }
  library.follow();
  const { port } = server.address() as AddressInfo;
  // Every address of the machine is none to open.
  const named = host === "0.0.0.0" || host === "::" ? hostname() : host;
  const shown = isIPv6(named) ? `[${named}]` : named;
  return {
    url: `http://${shown}:${port}/${token === null ? "" : `?token=${token}`}`,
    studies: library.size,
    library,
    close: () => {
      library.close();
      return new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

/** The token at the door: the printed address sets a cookie and leads on to the page without it. */
function entry(
  request: IncomingMessage,
  response: ServerResponse,
  access: Access,
): Refusal | "answered" | null {
  const [path, query] = request.url!.split("?", 2);
  const given = new URLSearchParams(query).get("token");
  if (access.token !== null && path === "/" && given !== null && sameToken(given, access.token)) {
    response.writeHead(303, {
      Location: "./",
      // Lax, not Strict: the address may be opened from a message. Requests of other sites are refused before.
      "Set-Cookie": `${cookieName(request)}=${access.token}; HttpOnly; SameSite=Lax; Path=/`,
      "Cache-Control": "no-store",
    });
    response.end();
    return "answered";
  }
  if (mayRead(request, access)) return null;
  return { status: 401, error: "open the address that mobalab serve printed: it holds the token" };
}

function refuse(response: ServerResponse, { status, error }: Refusal): void {
  const body = JSON.stringify({ error });
  response.writeHead(status, {
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
    "Cache-Control": "no-store",
    // A body that was announced is not waited for.
    Connection: "close",
    ...(status === 405 ? { Allow: "GET, HEAD" } : {}),
    ...(status === 401 ? { "WWW-Authenticate": "Bearer" } : {}),
  });
  response.end(body);
}

async function listen(server: Server, host: string, port: number | undefined): Promise<void> {
  const first = port ?? DEFAULT_PORT;
  for (let candidate = first; ; candidate++) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(candidate, host, () => {
          server.off("error", reject);
          resolve();
        });
      });
      return;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === "EADDRINUSE" && port === undefined && candidate < first + NEXT_PORTS) continue;
      if (code === "EADDRINUSE")
        throw new InputError(`port ${candidate} of ${host} is in use: give another --port`);
      if (code === "EACCES")
        throw new InputError(`port ${candidate} is not for everyone: give a --port above 1023`);
      throw new InputError(`cannot listen on ${host}: ${message}`);
    }
  }
}
