"""The calls that this process has started. No call is started twice, even if another run receives it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from .._core.turn import FORGOTTEN
from ..tools import failure
from ..v1 import message_pb2

# Number of calls that are remembered. The oldest ended calls are forgotten first.
REMEMBERED = 10_000
Result = message_pb2.ToolResult


class Ledger:
    """Calls by session and id, each with the future of its result, or `None` if the call is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[tuple[str, str], Future[Result] | None] = OrderedDict()

    def run(self, session_id: str, call_id: str, start: Callable[[], Future[Result]]) -> Future[Result]:
        """Starts the call, or returns the future of an earlier start."""
        key = (session_id, call_id)
        with self._lock:
            found = self._calls.get(key)
            if found is None and key in self._calls:
                return _forgotten(call_id)
            if found is None or found.cancelled():
                found = self._calls[key] = start()
                self._drop_oldest()
            return found

    def forget(self, session_id: str, call_id: str) -> None:
        """Releases the result of a closed call. That the call was started is remembered."""
        with self._lock:
            if (session_id, call_id) in self._calls:
                self._calls[session_id, call_id] = None

    def _drop_oldest(self) -> None:
        while len(self._calls) > REMEMBERED:
            oldest = next(iter(self._calls.values()))
            if oldest is not None and not oldest.done():
                return
            self._calls.popitem(last=False)


def _forgotten(call_id: str) -> Future[Result]:
    done: Future[Result] = Future()
    done.set_result(failure(call_id, FORGOTTEN))
    return done
