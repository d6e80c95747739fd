"""Servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Server
from scripts import SCRIPTS

from contextd import Contextd


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that nothing happens to."""
    running = Server(SCRIPTS)
    try:
        yield running.start()
    finally:
        running.remove()


@pytest.fixture
def client(server: Server) -> Iterator[Contextd]:
    with Contextd(server.url) as made:
        yield made
