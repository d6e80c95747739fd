"""A server that is not there: within 5 s, with the URL, the cause and the next step."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Server, free_port

from contextd import AsyncContextd, Contextd, errors
from contextd._core.settings import settings
from contextd._probe import unreachable

Peer = Callable[[socket.socket], None]


class Listener:
    """A server that does not speak gRPC, on a free port."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            self._peer(connection)
        except OSError:
            pass
        finally:
            connection.close()

    def close(self) -> None:
        self._listener.close()


def http2(connection: socket.socket) -> None:
    """A plain HTTP/2 server: what it reads of TLS is no preface."""
    connection.sendall(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    if connection.recv(24).startswith(b"PRI"):
        time.sleep(5)


def http1(connection: socket.socket) -> None:
    connection.recv(24)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def silent(connection: socket.socket) -> None:
    time.sleep(10)


def over_tls(place: Path, names: str) -> Peer:
    cert, key = place / f"{names}.pem".replace(":", "-"), place / f"{names}.key".replace(":", "-")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    subprocess.run(
        [*command.split(), "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2"])

    def peer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            http2(secure)

    return peer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reach")


CASES: dict[str, tuple[str, str, list[str]]] = {
    "nothing listens": ("refused", "http", ["connection refused", "contextd serve"]),
    "the name is unknown": ("unknown", "http", ["no-such-host.invalid", "cannot be resolved"]),
    "https to a plain server": ("http2", "https", ["does not speak TLS", "Use http://"]),
    "http to a server with TLS": ("localhost", "http", ["expects TLS", "Use https://"]),
    "an unknown authority": ("localhost", "https", ["unknown authority", "CONTEXTD_CA_FILE"]),
    "another host's certificate": ("other", "https+ca", ["another host", "host name of the certificate"]),
    "a server of HTTP/1": ("http1", "http", ["is not a gRPC server", "7070"]),
    "a server that says nothing": ("silent", "http", ["does not answer", "network policies"]),
}


@pytest.fixture
def url(request: pytest.FixtureRequest, place: Path) -> Iterator[tuple[str, str | None, list[str]]]:
    kind, scheme, words = CASES[request.param]
    ca = None
    if kind == "refused":
        yield f"http://127.0.0.1:{free_port()}", None, words
        return
    if kind == "unknown":
        yield "http://no-such-host.invalid:7070", None, words
        return
    peers: dict[str, Peer] = {"http2": http2, "http1": http1, "silent": silent}
    names = {"localhost": "DNS:localhost", "other": "DNS:other.example"}.get(kind)
    listener = Listener(over_tls(place, names) if names else peers[kind])
    if scheme == "https+ca":
        ca = str(place / f"{names}.pem".replace(":", "-"))
    yield f"{scheme.removesuffix('+ca')}://localhost:{listener.port}", ca, words
    listener.close()


@pytest.mark.parametrize("url", CASES, indirect=True)
def test_the_first_contact_fails_within_5_s_and_says_why(url: tuple[str, str | None, list[str]]) -> None:
    address, ca, words = url
    began = time.monotonic()
    with (
        Contextd(address, "the-key", ca_file=ca) as client,
        pytest.raises(errors.ServerUnreachableError) as caught,
    ):
        client.session()
    assert time.monotonic() - began < 5.5
    for word in [address, *words]:
        assert word in str(caught.value)
    assert "the-key" not in str(caught.value)


@pytest.mark.parametrize("url", ["nothing listens", "an unknown authority"], indirect=True)
async def test_asyncio_fails_in_the_same_way(url: tuple[str, str | None, list[str]]) -> None:
    address, ca, words = url
    began = time.monotonic()
    async with AsyncContextd(address, ca_file=ca) as client:
        with pytest.raises(errors.ServerUnreachableError) as caught:
            await client.session()
    assert time.monotonic() - began < 5.5
    for word in [address, *words]:
        assert word in str(caught.value)


def test_a_server_that_is_there_and_slow_is_not_called_unreachable() -> None:
    listener = Listener(http2)
    assert unreachable(settings({}, url=f"http://127.0.0.1:{listener.port}")) is None
    listener.close()


def test_a_server_that_was_reached_is_waited_for_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server().start()
    try:
        with Contextd(server.url) as client, caplog.at_level(logging.INFO, logger="contextd"):
            client.session("known")
            server.kill()
            again = threading.Timer(6, server.start)
            again.start()
            client.session("known")
            again.join()
        lines = [each.getMessage() for each in caplog.records]
        assert f"contextd at {server.url} does not answer" in lines[0]
        assert lines[-1] == f"contextd at {server.url} answers again"
        assert len(lines) == 2
    finally:
        server.remove()
