"""TLS and API keys."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PROGRAM, Server

from contextd import AsyncContextd, Contextd, errors


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, Path]]:
    """A server with TLS that takes one key, the key, and the certificate."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    place = tmp_path_factory.mktemp("tls")
    place.chmod(0o755)
    cert, key = place / "cert.pem", place / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    made = subprocess.run(
        [PROGRAM, "admin", "key", "generate", "--tenant", "acme"], check=True, capture_output=True, text=True
    )
    lines = made.stdout.splitlines() + made.stderr.splitlines()
    (secret,) = [line for line in lines if line.startswith("ctxd_")]
    (place / "keys.toml").write_text("\n".join(line for line in lines if line != secret))
    server = Server(
        CONTEXTD_TLS_CERT=str(cert),
        CONTEXTD_TLS_KEY=str(key),
        CONTEXTD_KEYS_FILE=str(place / "keys.toml"),
        CONTEXTD_AUTH_REQUIRED="true",
    )
    try:
        yield server.start(), secret, cert
    finally:
        server.remove()


def https(server: Server, host: str = "localhost") -> str:
    return f"https://{host}:{server.port}"


def test_a_key_and_a_certificate_let_one_in(secured: tuple[Server, str, Path]) -> None:
    server, key, ca = secured
    with Contextd(https(server), key, ca_file=str(ca)) as client:
        assert client.session().run_text("Hello!")


def test_variables_do_the_same(secured: tuple[Server, str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    server, key, ca = secured
    monkeypatch.setenv("CONTEXTD_URL", https(server, "127.0.0.1"))
    monkeypatch.setenv("CONTEXTD_API_KEY", key)
    monkeypatch.setenv("CONTEXTD_CA_FILE", str(ca))
    with Contextd() as client:
        assert client.session().id


async def test_asyncio_does_the_same(secured: tuple[Server, str, Path]) -> None:
    server, key, ca = secured
    async with AsyncContextd(https(server), key, ca_file=str(ca)) as client:
        assert await (await client.session()).run_text("Hello!")


def test_without_the_key_one_is_refused_at_once(secured: tuple[Server, str, Path]) -> None:
    server, key, ca = secured
    with Contextd(https(server), ca_file=str(ca)) as client, pytest.raises(errors.UnauthenticatedError) as caught:
        client.session()
    assert key not in str(caught.value)


def test_without_the_authority_the_server_is_not_trusted(secured: tuple[Server, str, Path]) -> None:
    server, key, _ = secured
    with Contextd(https(server), key, timeout=2) as client, pytest.raises(errors.UnavailableError):
        client.session()
