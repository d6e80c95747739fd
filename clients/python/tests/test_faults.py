"""Turns of both faces through kills, drains, cuts and times without a server.

CONTEXTD_FAULT_ROUNDS says how many rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many seconds there is no
server (3 by default).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest
from faults import SCRIPT, Seen, run_both
from harness import Cutter, Fleet, Server

ROUNDS = int(os.environ.get("CONTEXTD_FAULT_ROUNDS", "3"))
AWAY_SECONDS = float(os.environ.get("CONTEXTD_FAULT_AWAY", "3"))
# What a turn of the script takes by itself, a little less.
TURN_SECONDS = 1.3


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    replicas = Fleet({"steps": SCRIPT})
    try:
        yield replicas.start()
    finally:
        replicas.remove()


@pytest.fixture(scope="module")
def lonely() -> Iterator[Server]:
    server = Server({"steps": SCRIPT})
    try:
        yield server.start()
    finally:
        server.remove()


def check(seen: list[Seen], what: str, number: int) -> None:
    for face, each in zip(("sync", "async"), seen, strict=True):
        print(f"{what} {number} {face}: {each.reconnects} reconnects")
        each.check()


def some_time() -> None:
    time.sleep(random.uniform(0.05, TURN_SECONDS))


def in_turn(fleet: Fleet, number: int) -> list[Server]:
    """Both replicas, so that one of them is the turn's."""
    return fleet.replicas if number % 2 else fleet.replicas[::-1]


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_turn_survives_kill_9_of_its_replica(fleet: Fleet, number: int) -> None:
    def kill() -> None:
        some_time()
        for victim in in_turn(fleet, number):
            victim.kill()
            time.sleep(0.3)
            victim.start()

    check(run_both(fleet.url, f"kill-{number}", kill), "kill", number)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_turn_survives_a_drain(fleet: Fleet, number: int) -> None:
    def drain() -> None:
        some_time()
        for victim in in_turn(fleet, number):
            victim.end()
            victim.start()

    check(run_both(fleet.url, f"drain-{number}", drain), "drain", number)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_turn_survives_a_cut_every_200_ms(fleet: Fleet, number: int) -> None:
    cutter = Cutter(fleet.replicas[number % 2].port, 0.2)
    try:
        seen = run_both(cutter.url, f"cut-{number}", lambda: None)
    finally:
        cutter.close()
    check(seen, "cut", number)
    assert all(each.reconnects >= 3 for each in seen)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_turn_survives_a_time_without_a_server(fleet: Fleet, number: int) -> None:
    def leave() -> None:
        some_time()
        for each in fleet.replicas:
            each.kill()
        time.sleep(AWAY_SECONDS)
        for each in fleet.replicas:
            each.start()

    check(run_both(fleet.url, f"away-{number}", leave), "away", number)


@pytest.mark.parametrize("number", range(min(ROUNDS, 2)))
def test_a_turn_survives_kill_9_of_the_only_server_and_its_database(lonely: Server, number: int) -> None:
    def kill() -> None:
        some_time()
        lonely.kill()
        lonely.start()

    check(run_both(lonely.url, f"lonely-{number}", kill), "lonely", number)
