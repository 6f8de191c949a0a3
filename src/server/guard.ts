/** What is asked of every request before anything else looks at it, and what every answer carries. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { isIP, isIPv6 } from "node:net";
import { hostname } from "node:os";

const LONGEST_URL = 4096;

const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HEADERS: Record<string, string> = {
  "Content-Security-Policy": POLICY,
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
};

export interface Access {
  /** As given: an address or a name. */
  readonly host: string;
  /** Null: whoever can reach the server may read. */
  readonly token: string | null;
}

export interface Refusal {
  readonly status: number;
  readonly error: string;
}

export function secure(response: ServerResponse): void {
  for (const [name, content] of Object.entries(HEADERS)) response.setHeader(name, content);
}

/** Why a request is not answered, or null. Whether it may read is `mayRead`'s to say. */
export function refusalOf(request: IncomingMessage, { host }: Access): Refusal | null {
  const { method, url = "", headers, rawHeaders } = request;
  if (method !== "GET" && method !== "HEAD") return { status: 405, error: "only GET and HEAD are answered" };
  if (url.length > LONGEST_URL) {
    return { status: 414, error: `the address is longer than ${LONGEST_URL} characters` };
  }
  if (!url.startsWith("/")) return { status: 400, error: "the address does not begin with /" };
  if (headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) !== 0) {
    return { status: 413, error: "a request has no body here" };
  }
  if (rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === "host").length > 1) {
    return { status: 400, error: "there is more than one Host header" };
  }
  const named = hostOf(headers.host);
  // A name that an attacker's domain server gives this machine's address comes with that name.
  if (named === null || !isOwnName(named, host)) {
    return { status: 421, error: "the Host header names another server" };
  }
  const { origin } = headers;
  if (origin !== undefined && !isOwnOrigin(origin, headers.host!)) {
    return { status: 403, error: "the request comes from another origin" };
  }
  const site = headers["sec-fetch-site"];
  const opensPage = headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
  if (site !== undefined && site !== "same-origin" && site !== "none" && !opensPage) {
    return { status: 403, error: "the request comes from another site" };
  }
  return null;
}

/** Whether a request carries the token: as bearer, or in the cookie that the printed address sets. */
export function mayRead(request: IncomingMessage, { token }: Access): boolean {
  if (token === null) return true;
  const bearer = /^Bearer ([^ ]+)$/i.exec(request.headers.authorization ?? "")?.[1];
  const cookies = (request.headers.cookie ?? "").split(/; */).map((pair) => pair.split("="));
  const name = cookieName(request);
  return [bearer, ...cookies.filter(([key]) => key === name).map(([, content]) => content)].some(
    (given) => given !== undefined && sameToken(given, token),
  );
}

/** Two servers of one host share its cookies, so the port is in the name. */
export function cookieName(request: IncomingMessage): string {
  return `mobalab-${request.socket.localPort ?? 0}`;
}

/** In a time that does not depend on where they differ. */
export function sameToken(given: string, token: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** The name in a Host header, without port and brackets, in lower case. */
function hostOf(header: string | undefined): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?$/i.exec(header ?? "");
  if (!match) return null;
  if (match[1] !== undefined && !isIPv6(match[1])) return null;
  return (match[1] ?? match[2]).toLowerCase();
}

function isOwnName(name: string, host: string): boolean {
  if (isLoopback(name) || name === host.toLowerCase()) return true;
  // On loopback no other name leads here honestly. Elsewhere an address does: no domain server has a say in it.
  const own = hostname().toLowerCase();
  return !isLoopback(host) && (isIP(name) !== 0 || name === own || name === `${own}.local`);
}

function isOwnOrigin(origin: string, host: string): boolean {
  return origin === `http://${host}` || origin === `https://${host}`;
}
