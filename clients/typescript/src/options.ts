/** Where the server is and who calls, from options and the environment. */
import { readFileSync } from "node:fs";

/** Options of a client. What is not set comes from the environment. */
export interface ContextdOptions {
  /**
   * `http://host:7070` (plain text), `https://host` (TLS), several hosts by comma, or `dns:///name:7070` and
   * `https+dns:///name`, whose addresses are used in turn. Default `CONTEXTD_URL`, else `http://127.0.0.1:7070`.
   */
  url?: string;
  /** Default `CONTEXTD_API_KEY`. */
  apiKey?: string;
  /** File of certificate authorities (PEM) to trust in place of the system's. Default `CONTEXTD_CA_FILE`. */
  caFile?: string;
  /** Client certificate (PEM). Default `CONTEXTD_CERT_FILE`. */
  certFile?: string;
  /** Its private key (PEM). Default `CONTEXTD_KEY_FILE`. */
  keyFile?: string;
  /** Milliseconds that one unary call may take. Default 60,000. */
  timeout?: number;
  /** Milliseconds without a server after which a call or a run gives up. Default 5 minutes. */
  patience?: number;
  /** Where failures go that a developer has to see: tools and approval callbacks that throw, and outages. Default: standard error. */
  log?: Log;
}

/** What is logged to. */
export interface Log {
  info(message: string): void;
  warn(message: string): void;
  error(message: string, error: unknown): void;
}

/** Settled options. */
export interface Settings {
  url: string;
  /** A gRPC target for each host that the URL names. */
  targets: string[];
  tls: { ca?: Buffer; cert?: Buffer; key?: Buffer } | undefined;
  apiKey: string | undefined;
  timeout: number;
  patience: number;
  log: Log;
}

/** Standard error: what a program writes to its standard output is its own. */
const STDERR: Log = {
  info: (message) => console.warn(message),
  warn: (message) => console.warn(message),
  error: (message, error) => console.error(message, error),
};
const DEFAULT_URL = "http://127.0.0.1:7070";
const PORTS = { http: 7070, https: 443 };

/** Settles options; throws a TypeError that names what is wrong. Empty options and variables count as unset. */
export function settle(options: ContextdOptions, env: NodeJS.ProcessEnv = process.env): Settings {
  const url = options.url || env.CONTEXTD_URL || addressOf(env.CONTEXTD_ADDRESS) || DEFAULT_URL;
  const { targets, tls } = parseUrl(url);
  const caFile = options.caFile || env.CONTEXTD_CA_FILE;
  const certFile = options.certFile || env.CONTEXTD_CERT_FILE;
  const keyFile = options.keyFile || env.CONTEXTD_KEY_FILE;
  if (!certFile !== !keyFile) {
    throw new TypeError(
      "a client certificate takes both certFile (CONTEXTD_CERT_FILE) and keyFile (CONTEXTD_KEY_FILE)",
    );
  }
  if (!tls && (options.caFile || options.certFile)) {
    throw new TypeError(`${url} is plain text; certificates take an https:// URL`);
  }
  const read = (file: string | undefined) => (file ? readFileSync(file) : undefined);
  const settings = {
    url,
    targets,
    timeout: options.timeout ?? 60_000,
    patience: options.patience ?? 300_000,
    log: options.log ?? STDERR,
  };
  // Not enumerable: neither `console.log(client)` nor JSON shows a key.
  return Object.defineProperties(settings as Settings, {
    apiKey: { value: keyOf(options.apiKey) ?? keyOf(env.CONTEXTD_API_KEY) },
    tls: { value: tls ? { ca: read(caFile), cert: read(certFile), key: read(keyFile) } : undefined },
  });
}

/** A key without the white space around it, such as the newline at the end of a file. No message shows a key. */
function keyOf(text: string | undefined): string | undefined {
  const key = (text ?? "").trim();
  const wrong = /[^!-~]/.exec(key);
  if (wrong) {
    throw new TypeError(
      `the API key has a character at position ${wrong.index + 1} of ${key.length} that no key has: a space, a control character, or one that is not ASCII`,
    );
  }
  return key || undefined;
}

/** `CONTEXTD_ADDRESS`, which the command line also reads: its plain-text form has no scheme. */
function addressOf(text: string | undefined): string | undefined {
  return !text || text.includes("://") || text.startsWith("dns:") ? text : `http://${text}`;
}

/** The targets of a URL, and whether TLS is used. */
function parseUrl(url: string): { targets: string[]; tls: boolean } {
  const name = /^(?:(http|https)\+)?dns:\/\/\/(.*)$/.exec(url);
  if (name) {
    const tls = name[1] === "https";
    return { targets: [`dns:///${withPort(name[2] ?? "", url, PORTS[tls ? "https" : "http"])}`], tls };
  }
  const [, scheme, rest = ""] = /^(http|https):\/\/(.*)$/.exec(url) ?? [];
  if (scheme !== "http" && scheme !== "https") {
    throw new TypeError(`${JSON.stringify(url)} is not a URL of a server: it begins with http://, https:// or dns:///`);
  }
  const prefix = `${scheme}://`;
  const hosts = rest
    .split(",")
    .map((host) => (host.trim().startsWith(prefix) ? host.trim().slice(prefix.length) : host));
  return {
    targets: hosts.map((host) => `dns:///${withPort(host.trim(), url, PORTS[scheme])}`),
    tls: scheme === "https",
  };
}

/** `host:port`; refuses paths, users and whatever else does not belong there. */
function withPort(host: string, url: string, byDefault: number): string {
  const [, name, port] = /^(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@[\]]+)(?::(\d{1,5}))?\/*$/.exec(host) ?? [];
  if (!name || Number(port ?? 0) > 65_535) {
    throw new TypeError(`${JSON.stringify(url)} names a host and a port, nothing else`);
  }
  return `${name}:${Number(port) || byDefault}`;
}
