"""Finds out why a server cannot be reached, with plain sockets, because gRPC's error has little detail."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass

from ._core.settings import Settings
from .errors import Problem, ServerUnreachableError

# The time for the first connection, after which the call fails. The last second is used to find the cause.
CONTACT_SECONDS = 5.0
PROBE_SECONDS = 1.0
# Maximum number of hosts of a URL that are probed.
MAX_HOSTS = 3
# The beginning of an HTTP/2 connection: the preface and empty SETTINGS.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SETTINGS_FRAME = 4
HOSTNAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
UNKNOWN_AUTHORITY = (18, 19, 20, 21)


@dataclass(frozen=True)
class Finding:
    """Why a host cannot be reached, and what to do."""

    cause: str
    step: str


def unreachable(settings: Settings) -> ServerUnreachableError | None:
    """The exception for a server that cannot be reached, or `None` if it responds slowly. Takes `PROBE_SECONDS`."""
    findings: list[Finding | None] = []
    hosts = [target.removeprefix("dns:///") for target in settings.targets[:MAX_HOSTS]]

    def ask() -> None:
        findings.extend(probe(host, settings) for host in hosts)

    asking = threading.Thread(target=ask, name="contextd-probe", daemon=True)
    asking.start()
    asking.join(PROBE_SECONDS)
    asked = findings[:] or [no_answer(hosts[0])]
    found = [each for each in asked if each is not None]
    if len(found) < len(asked):
        return None
    causes = "; ".join(dict.fromkeys(each.cause for each in found))
    text = f"no contextd server was reached at {settings.url}: {causes}. {found[0].step}"
    return ServerUnreachableError(Problem("UNAVAILABLE", text))


def no_answer(host: str) -> Finding:
    """No response was received."""
    return Finding(
        f"{host} does not answer",
        "Check the address in the URL (CONTEXTD_URL), and firewalls and network policies on the way.",
    )


def probe(host: str, settings: Settings) -> Finding | None:
    """Connects to `host:port` and identifies the server. Returns `None` for a server that gRPC can use."""
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    try:
        with socket.create_connection((name, int(port)), timeout=PROBE_SECONDS) as plain:
            return _over_tls(host, name, plain, settings) if settings.tls else _plain(host, plain)
    except socket.gaierror:
        return Finding(f"the name {name} cannot be resolved", "Check the host name in the URL (CONTEXTD_URL).")
    except ConnectionRefusedError:
        return Finding(
            f"{host} refuses the connection (connection refused)",
            "Start the server (`contextd serve`), or set CONTEXTD_URL to the address of a running one.",
        )
    except TimeoutError:
        return no_answer(host)
    except OSError as error:
        return Finding(f"{host}: {error.strerror or error}", "Check the address in the URL (CONTEXTD_URL).")


def _over_tls(host: str, name: str, plain: socket.socket, settings: Settings) -> Finding | None:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        context.set_alpn_protocols(["h2"])
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        with context.wrap_socket(plain, server_hostname=name) as secure:
            return _after_handshake(host, secure, settings)
    except ssl.SSLCertVerificationError as error:
        return _certificate(host, name, error)
    except (ssl.SSLError, ConnectionError) as error:
        if _speaks_plain(host, name):
            return Finding(
                f"{host} does not speak TLS, and the URL begins with https://",
                "Use http:// in the URL (CONTEXTD_URL), or set CONTEXTD_TLS_CERT and CONTEXTD_TLS_KEY at the server.",
            )
        reason = getattr(error, "reason", None) or error
        return Finding(f"TLS with {host} failed: {reason}", "Check the server's certificate and its TLS settings.")


def _after_handshake(host: str, secure: ssl.SSLSocket, settings: Settings) -> Finding | None:
    """With TLS 1.3 a server refuses a client without a certificate after the handshake."""
    try:
        secure.sendall(PREFACE)
        answered = secure.recv(9)
    except (ssl.SSLError, ConnectionError) as error:
        if "CERTIFICATE" in str(getattr(error, "reason", "")):
            return Finding(
                f"{host} requires a client certificate that it accepts ({error.reason})",  # type: ignore[union-attr]
                "Set CONTEXTD_CERT_FILE and CONTEXTD_KEY_FILE (cert_file and key_file).",
            )
        return Finding(f"TLS with {host} failed: {error}", "Check the server's TLS settings.")
    if _is_http2(answered) and settings.ca_file:
        return None
    if _is_http2(answered):  # gRPC uses its own root certificates, which may not include this one
        return Finding(
            f"{host} accepts TLS connections, but gRPC does not trust its certificate or was too slow",
            "If the certificate is from a private authority, set CONTEXTD_CA_FILE (ca_file): gRPC does not read the "
            "system's authorities.",
        )
    return _other_protocol(host)


def _certificate(host: str, name: str, error: ssl.SSLCertVerificationError) -> Finding:
    if error.verify_code in HOSTNAME_MISMATCH:
        return Finding(
            f"the certificate of {host} is for another host, not for {name}",
            "Use a host name of the certificate in the URL (CONTEXTD_URL), or give the server one for this name.",
        )
    if error.verify_code in UNKNOWN_AUTHORITY:
        return Finding(
            f"the certificate of {host} is signed by an unknown authority ({error.verify_message})",
            "Set CONTEXTD_CA_FILE (ca_file) to the authority's certificate (PEM).",
        )
    return Finding(f"the certificate of {host} is not valid: {error.verify_message}", "Renew the server's certificate.")


def _plain(host: str, plain: socket.socket) -> Finding | None:
    plain.sendall(PREFACE)
    try:
        answered = plain.recv(9)
    except TimeoutError:
        return no_answer(host)
    except ConnectionError:
        answered = b""
    if answered[:2] == b"\x15\x03" or (not answered and _speaks_tls(host)):
        return Finding(
            f"{host} expects TLS, and the URL is plain text",
            "Use https:// in the URL (CONTEXTD_URL).",
        )
    return None if _is_http2(answered) else _other_protocol(host)


def _other_protocol(host: str) -> Finding:
    return Finding(
        f"{host} is not a gRPC server (no HTTP/2)",
        "Check the port in the URL (CONTEXTD_URL): contextd's own is 7070, not that of metrics and health.",
    )


def _is_http2(answered: bytes) -> bool:
    return len(answered) > 3 and answered[3] == SETTINGS_FRAME and not answered.startswith(b"HTTP")


def _speaks_plain(host: str, name: str) -> bool:
    try:
        with socket.create_connection((name, int(host.rpartition(":")[2])), timeout=PROBE_SECONDS) as plain:
            plain.sendall(PREFACE)
            answered = plain.recv(9)
            return _is_http2(answered) or answered.startswith(b"HTTP")
    except OSError:
        return False


def _speaks_tls(host: str) -> bool:
    name, _, port = host.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((name.strip("[]"), int(port)), timeout=PROBE_SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:
        return False
