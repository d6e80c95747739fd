"""The delay before the next attempt."""

from __future__ import annotations

FIRST_SECONDS = 0.05
MOST_SECONDS = 1.0


def delay(failures: int, asked: float | None = None, jitter: float = 0.0) -> float:
    """The delay after this number of consecutive failures, at least the delay that the server requested.

    `jitter` is a random number from 0 to 1, so that hosts that lost the same server do not reconnect at the same time.
    """
    usual: float = min(FIRST_SECONDS * 2 ** min(failures, 10), MOST_SECONDS) * (0.75 + jitter / 2)
    return max(usual, asked or 0.0)
