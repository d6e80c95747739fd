/** Why a server cannot be reached: asked of plain sockets, because a gRPC channel that does not connect says little. */
import { connect as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { status } from "@grpc/grpc-js";
import { ServerUnreachableError } from "./errors.js";
import type { Settings } from "./options.js";

/** Milliseconds within which the first connection comes about, or the call fails. The last second finds the cause. */
export const CONTACT = 5_000;
export const PROBE = 1_000;
/** Hosts of one URL that are asked. */
const MAX_HOSTS = 3;
/** The beginning of an HTTP/2 connection: the preface and empty SETTINGS. */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
const SETTINGS_FRAME = 4;

interface Finding {
  cause: string;
  step: string;
}

/** The error for a server that was not reached; undefined for one that is there and slow. Takes at most a second. */
export async function unreachable(settings: Settings): Promise<ServerUnreachableError | undefined> {
  const hosts = settings.targets.slice(0, MAX_HOSTS).map((target) => target.replace("dns:///", ""));
  const asked = await Promise.all(hosts.map((host) => inTime(probe(host, settings), noAnswer(host))));
  const findings = asked.filter((each) => each !== undefined);
  if (findings.length < asked.length) return undefined;
  const causes = [...new Set(findings.map((each) => each.cause))].join("; ");
  return new ServerUnreachableError({
    code: status.UNAVAILABLE,
    reason: "UNAVAILABLE",
    message: `no contextd server was reached at ${settings.url}: ${causes}. ${findings[0]?.step}`,
  });
}

function noAnswer(host: string): Finding {
  return {
    cause: `${host} does not answer`,
    step: "Check the address in the URL (CONTEXTD_URL), and firewalls and network policies on the way.",
  };
}

function inTime<T>(work: Promise<T | undefined>, otherwise: T): Promise<T | undefined> {
  let timer: NodeJS.Timeout;
  const late = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(otherwise), PROBE);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/** Connects to `host:port` and finds out what is there: undefined for a server that gRPC can talk to. */
async function probe(host: string, settings: Settings): Promise<Finding | undefined> {
  try {
    return settings.tls ? await overTls(host, settings) : await plain(host);
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    if (code === "ENOTFOUND" || code === "EAI_AGAIN") {
      return {
        cause: `the name ${split(host).name} cannot be resolved`,
        step: "Check the host name in the URL (CONTEXTD_URL).",
      };
    }
    if (code === "ECONNREFUSED") {
      return {
        cause: `${host} refuses the connection (connection refused)`,
        step: "Start the server (`contextd serve`), or set CONTEXTD_URL to the address of a running one.",
      };
    }
    if (code === "ETIMEDOUT") return noAnswer(host);
    return { cause: `${host}: ${message}`, step: "Check the address in the URL (CONTEXTD_URL)." };
  }
}

async function plain(host: string): Promise<Finding | undefined> {
  const answered = await firstBytes(connectPlain(split(host).address));
  if ((answered[0] === 0x15 && answered[1] === 3) || (!answered.length && (await speaksTls(host)))) {
    return { cause: `${host} expects TLS, and the URL is plain text`, step: "Use https:// in the URL (CONTEXTD_URL)." };
  }
  return isHttp2(answered) ? undefined : otherProtocol(host);
}

async function overTls(host: string, settings: Settings): Promise<Finding | undefined> {
  const { name, address } = split(host);
  const { ca, cert, key } = settings.tls ?? {};
  const servername = isIP(name) ? "" : name;
  try {
    const answered = await firstBytes(connectTls({ ...address, servername, ca, cert, key, ALPNProtocols: ["h2"] }));
    return isHttp2(answered) ? undefined : otherProtocol(host);
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    const certificate = ofCertificate(host, name, code);
    if (certificate) return certificate;
    if (/CERTIFICATE_REQUIRED|ALERT.*CERTIFICATE|HANDSHAKE_FAILURE/.test(code)) {
      return {
        cause: `${host} requires a client certificate that it accepts`,
        step: "Set CONTEXTD_CERT_FILE and CONTEXTD_KEY_FILE (certFile and keyFile).",
      };
    }
    if (/^(E(NOTFOUND|AI_AGAIN|CONNREFUSED|TIMEDOUT))$/.test(code)) throw error;
    if (await speaksPlain(host)) {
      return {
        cause: `${host} does not speak TLS, and the URL begins with https://`,
        step: "Use http:// in the URL (CONTEXTD_URL), or set CONTEXTD_TLS_CERT and CONTEXTD_TLS_KEY at the server.",
      };
    }
    return { cause: `TLS with ${host} failed: ${message}`, step: "Check the server's certificate and TLS settings." };
  }
}

function ofCertificate(host: string, name: string, code: string): Finding | undefined {
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return {
      cause: `the certificate of ${host} is for another host, not for ${name}`,
      step: "Use a host name of the certificate in the URL (CONTEXTD_URL), or give the server one for this name.",
    };
  }
  if (/SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)/.test(code)) {
    return {
      cause: `the certificate of ${host} is signed by an unknown authority (${code})`,
      step: "Set CONTEXTD_CA_FILE (caFile) to the authority's certificate (PEM).",
    };
  }
  if (/^(CERT_|ERR_TLS_CERT)/.test(code)) {
    return { cause: `the certificate of ${host} is not valid: ${code}`, step: "Renew the server's certificate." };
  }
  return undefined;
}

function otherProtocol(host: string): Finding {
  return {
    cause: `${host} is not a gRPC server (no HTTP/2)`,
    step: "Check the port in the URL (CONTEXTD_URL): contextd's own is 7070, not that of metrics and health.",
  };
}

/** What comes after the preface: nothing, where the server closes. */
function firstBytes(socket: Socket | TLSSocket): Promise<Buffer> {
  return new Promise<Buffer>((resolve, reject) => {
    socket.setTimeout(PROBE, () => reject(Object.assign(new Error("no answer"), { code: "ETIMEDOUT" })));
    socket.once("error", (error: NodeJS.ErrnoException) =>
      error.code === "ECONNRESET" && !("encrypted" in socket) ? resolve(Buffer.alloc(0)) : reject(error),
    );
    socket.once("data", resolve);
    socket.once("close", () => resolve(Buffer.alloc(0)));
    socket.write(PREFACE);
  }).finally(() => {
    socket.on("error", () => {});
    socket.destroy();
  });
}

function isHttp2(answered: Buffer): boolean {
  return answered.length > 3 && answered[3] === SETTINGS_FRAME && !answered.toString("latin1").startsWith("HTTP");
}

async function speaksPlain(host: string): Promise<boolean> {
  const answered = await firstBytes(connectPlain(split(host).address)).catch(() => Buffer.alloc(0));
  return isHttp2(answered) || answered.toString("latin1").startsWith("HTTP");
}

function speaksTls(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTls({ ...split(host).address, rejectUnauthorized: false, timeout: PROBE });
    const done = (speaks: boolean) => {
      socket.destroy();
      resolve(speaks);
    };
    socket.once("secureConnect", () => done(true));
    for (const failed of ["error", "timeout", "close"]) socket.once(failed, () => done(false));
  });
}

function split(host: string): { name: string; address: { host: string; port: number } } {
  const at = host.lastIndexOf(":");
  const name = host.slice(0, at).replace(/^\[|\]$/g, "");
  return { name, address: { host: name, port: Number(host.slice(at + 1)) } };
}
