"""Turns of both faces through kills, drains, cuts and times without a server.

CONTEXTD_FAULT_ROUNDS says how many rounds of each (3 by default), CONTEXTD_FAULT_AWAY for how many seconds there is no
server (3 by default), and CONTEXTD_FAULT_PARALLEL how many rounds of a fault run at the same time, each with servers of
its own (1 by default).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from faults import SCRIPT, Seen, run_both
from harness import Cutter, Fleet, Server

ROUNDS = int(os.environ.get("CONTEXTD_FAULT_ROUNDS", "3"))
AWAY_SECONDS = float(os.environ.get("CONTEXTD_FAULT_AWAY", "3"))
PARALLEL = int(os.environ.get("CONTEXTD_FAULT_PARALLEL", "1"))
# What a turn of the script takes by itself, a little less.
TURN_SECONDS = 1.3

at_once = pytest.mark.parametrize(
    "numbers",
    [range(first, min(first + PARALLEL, ROUNDS)) for first in range(0, ROUNDS, PARALLEL)],
    ids=lambda numbers: f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0]),
)


@pytest.fixture(scope="module")
def fleets() -> Iterator[list[Fleet]]:
    """One for each of the rounds that run at the same time."""
    made = [Fleet({"steps": SCRIPT}) for _ in range(min(PARALLEL, ROUNDS))]
    try:
        for fleet in made:
            fleet.start()
        yield made
    finally:
        for fleet in made:
            fleet.remove()


@pytest.fixture(scope="module")
def lonely() -> Iterator[Server]:
    server = Server({"steps": SCRIPT})
    try:
        yield server.start()
    finally:
        server.remove()


def run_rounds(fleets: list[Fleet], numbers: range, run_round: Callable[[Fleet, int], None]) -> None:
    """Runs these rounds at the same time, each with a fleet, and fails if one of them does."""
    with ThreadPoolExecutor(len(numbers)) as pool:
        given = zip(numbers, fleets, strict=False)
        running = {number: pool.submit(run_round, fleet, number) for number, fleet in given}
    failed = {number: error for number, future in running.items() if (error := future.exception())}
    if failed:
        for number, fleet in zip(numbers, fleets, strict=False):
            if number in failed:
                print(f"The servers of round {number}:", *fleet.logs(), sep="\n")
        raise AssertionError(f"failed rounds: {failed}") from next(iter(failed.values()))


def check(seen: list[Seen], what: str, number: int) -> None:
    for face, each in zip(("sync", "async"), seen, strict=True):
        print(f"{what} {number} {face}: {each.reconnects} reconnects")
        each.check()


def some_time() -> None:
    time.sleep(random.uniform(0.05, TURN_SECONDS))


def in_turn(fleet: Fleet, number: int) -> list[Server]:
    """Both replicas, so that one of them is the turn's."""
    return fleet.replicas if number % 2 else fleet.replicas[::-1]


def kill_round(fleet: Fleet, number: int) -> None:
    def kill() -> None:
        some_time()
        for victim in in_turn(fleet, number):
            victim.kill()
            time.sleep(0.3)
            victim.start()

    check(run_both(fleet.url, f"kill-{number}", kill), "kill", number)


def drain_round(fleet: Fleet, number: int) -> None:
    def drain() -> None:
        some_time()
        for victim in in_turn(fleet, number):
            victim.end()
            victim.start()

    check(run_both(fleet.url, f"drain-{number}", drain), "drain", number)


def cut_round(fleet: Fleet, number: int) -> None:
    cutter = Cutter(fleet.replicas[number % 2].port, 0.2)
    try:
        seen = run_both(cutter.url, f"cut-{number}", lambda: None)
    finally:
        cutter.close()
    check(seen, "cut", number)
    assert all(each.reconnects >= 3 for each in seen)


def away_round(fleet: Fleet, number: int) -> None:
    def leave() -> None:
        some_time()
        for each in fleet.replicas:
            each.kill()
        time.sleep(AWAY_SECONDS)
        for each in fleet.replicas:
            each.start()

    check(run_both(fleet.url, f"away-{number}", leave), "away", number)


@at_once
def test_a_turn_survives_kill_9_of_its_replica(fleets: list[Fleet], numbers: range) -> None:
    run_rounds(fleets, numbers, kill_round)


@at_once
def test_a_turn_survives_a_drain(fleets: list[Fleet], numbers: range) -> None:
    run_rounds(fleets, numbers, drain_round)


@at_once
def test_a_turn_survives_a_cut_every_200_ms(fleets: list[Fleet], numbers: range) -> None:
    run_rounds(fleets, numbers, cut_round)


@at_once
def test_a_turn_survives_a_time_without_a_server(fleets: list[Fleet], numbers: range) -> None:
    run_rounds(fleets, numbers, away_round)


@pytest.mark.parametrize("number", range(min(ROUNDS, 2)))
def test_a_turn_survives_kill_9_of_the_only_server_and_its_database(lonely: Server, number: int) -> None:
    def kill() -> None:
        some_time()
        lonely.kill()
        lonely.start()

    check(run_both(lonely.url, f"lonely-{number}", kill), "lonely", number)
