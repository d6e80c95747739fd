/** Where the server is and who calls, from options and the environment. */
import { readFileSync } from "node:fs";

/** Options of a client. What is not set comes from the environment. */
export interface ContextdOptions {
  /**
   * `http://host:port` in plain text or `https://host:port` with TLS; several hosts, separated by commas, or
   * `http://dns:///name:port` for all addresses of a name, take turns. Default `CONTEXTD_URL`, else `http://127.0.0.1:7070`.
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
}

/** Settled options. */
export interface Settings {
  target: string;
  tls: { ca?: Buffer; cert?: Buffer; key?: Buffer } | undefined;
  apiKey: string | undefined;
  timeout: number;
  patience: number;
}

/** Settles options; throws a TypeError that names what is wrong. */
export function settle(options: ContextdOptions, env: NodeJS.ProcessEnv = process.env): Settings {
  const url = options.url ?? env.CONTEXTD_URL ?? "http://127.0.0.1:7070";
  const match = /^(https?):\/\/(.+?)\/?$/.exec(url);
  if (!match?.[2]) throw new TypeError(`url ${JSON.stringify(url)} does not begin with http:// or https://`);
  const read = (file: string | undefined) => (file ? readFileSync(file) : undefined);
  const tls = {
    ca: read(options.caFile ?? env.CONTEXTD_CA_FILE),
    cert: read(options.certFile ?? env.CONTEXTD_CERT_FILE),
    key: read(options.keyFile ?? env.CONTEXTD_KEY_FILE),
  };
  return {
    target: target(match[2], match[1] === "https" ? 443 : 80),
    tls: match[1] === "https" ? tls : undefined,
    apiKey: options.apiKey ?? (env.CONTEXTD_API_KEY || undefined),
    timeout: options.timeout ?? 60_000,
    patience: options.patience ?? 300_000,
  };
}

/** A gRPC target of hosts. Several hosts have to be addresses: gRPC resolves one name only. */
function target(hosts: string, port: number): string {
  if (hosts.startsWith("dns:")) return hosts;
  const all = hosts.split(",").map((host) => host.trim().replace(/^localhost(?=:|$)/, "127.0.0.1"));
  const withPort = all.map((host) => (/:\d+$/.test(host) ? host : `${host}:${port}`));
  if (withPort.length === 1) return `dns:///${withPort[0]}`;
  if (withPort.every((host) => /^\d+\.\d+\.\d+\.\d+:\d+$/.test(host))) return `ipv4:${withPort.join(",")}`;
  if (withPort.every((host) => host.startsWith("["))) return `ipv6:${withPort.join(",")}`;
  throw new TypeError(
    "several hosts have to be IPv4 or IPv6 addresses; give one name as dns:///NAME:PORT for all of its addresses",
  );
}
