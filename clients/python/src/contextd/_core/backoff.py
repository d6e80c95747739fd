"""How long to wait before the next try."""

from __future__ import annotations

FIRST_SECONDS = 0.05
MOST_SECONDS = 1.0


def delay(failures: int, asked: float | None = None, jitter: float = 0.0) -> float:
    """The wait after so many failures in a row, at least what the server asked for.

    `jitter` is a random number of 0 to 1. So hosts that lost the same server do not come back at the same moment.
    """
    usual: float = min(FIRST_SECONDS * 2 ** min(failures, 10), MOST_SECONDS) * (0.75 + jitter / 2)
    return max(usual, asked or 0.0)
