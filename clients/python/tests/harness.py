"""A real server for tests: `contextd serve` on a PostgreSQL of its own, with scripts in place of models."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SECONDS = 60.0
# Short, so that tests of crashes are quick; a busy machine renews it in time all the same. A turn whose lease runs out
# five times in a row fails.
LEASE = "3s"
PROGRAM = os.environ.get("CONTEXTD_BIN", str(Path(__file__).resolve().parents[3] / "target/debug/contextd"))


# Ports that no system assigns by itself: a server that is down keeps its port to itself.
PORTS = range(10_000, 32_000)


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port


class Server:
    """contextd, which can be killed and started again on the same data and the same port."""

    def __init__(self, scripts: dict[str, Any] | None = None, config: str = "", **variables: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="contextd-python-"))
        self.place.chmod(0o755)  # started by root, PostgreSQL runs as another user
        (self.place / "scripts").mkdir()
        for name, script in (scripts or {}).items():
            (self.place / "scripts" / f"{name}.json").write_text(json.dumps(script))
        if config:
            (self.place / "config.toml").write_text(config)
            variables["CONTEXTD_CONFIG"] = str(self.place / "config.toml")
        self.variables = variables
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CONTEXTD_") and not name.endswith(("_API_KEY", "_BASE_URL"))
        }
        env |= {
            "CONTEXTD_LISTEN": f"127.0.0.1:{self.port}",
            "CONTEXTD_DATA_DIR": str(self.place / "data"),
            "CONTEXTD_SCRIPT_DIR": str(self.place / "scripts"),
            "CONTEXTD_LEASE_TTL": LEASE,
            "XDG_CONFIG_HOME": str(self.place),
        } | self.variables
        with open(self.place / "log", "a") as log:
            self.process = subprocess.Popen([PROGRAM, "serve"], env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        patience = threading.Timer(SECONDS, self.process.kill)
        patience.start()
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        patience.cancel()
        if not ready.startswith("contextd listens on "):
            raise RuntimeError(f"the server does not start: {self.log()}")
        return self

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(SECONDS)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def log(self) -> str:
        return (self.place / "log").read_text()

    def database_url(self) -> str:
        """The PostgreSQL that it runs, for other replicas on this machine."""
        lines = (self.place / "data/postgresql/postmaster.pid").read_text().splitlines()
        return f"postgres://contextd@localhost/contextd?host={lines[4]}"

    def remove(self) -> None:
        """Stops it at once, as a second signal does, and takes its files away."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        self.end()
        shutil.rmtree(self.place, ignore_errors=True)


class Fleet:
    """Two replicas on the database of a third server. Clients do not know that one, but it may take turns over."""

    def __init__(self, scripts: dict[str, Any]) -> None:
        self._keeper = Server(scripts)
        self._scripts = scripts
        self.replicas: list[Server] = []

    @property
    def url(self) -> str:
        return "http://" + ",".join(f"127.0.0.1:{each.port}" for each in self.replicas)

    def start(self) -> Fleet:
        database = self._keeper.start().database_url()
        self.replicas = [Server(self._scripts, CONTEXTD_DATABASE_URL=database).start() for _ in range(2)]
        return self

    def logs(self) -> list[str]:
        """The newest lines of each server's log."""
        return [each.log()[-20_000:] for each in [self._keeper, *self.replicas]]

    def remove(self) -> None:
        for each in [*self.replicas, self._keeper]:
            each.remove()


class Cutter:
    """A proxy that cuts every connection again and again."""

    def __init__(self, port: int, every: float) -> None:
        self._target, self._every = port, every
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        for work in (self._accept, self._cut):
            threading.Thread(target=work, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                self._drop(each)

    def _drop(self, each: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(each)
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _cut(self) -> None:
        while not self._stop.wait(self._every):
            with self._lock:
                cut = list(self._sockets)
            self.cuts += bool(cut)
            for each in cut:
                self._drop(each)

    def close(self) -> None:
        self._stop.set()
        self._listener.close()
        for each in list(self._sockets):
            self._drop(each)
