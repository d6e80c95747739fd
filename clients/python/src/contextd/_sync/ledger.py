"""The calls that this process has begun. None is begun twice, whichever run asks for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from ..v1 import message_pb2

# Calls that ended are remembered for as long as so many newer ones leave room.
REMEMBERED = 10_000
Result = message_pb2.ToolResult


class Ledger:
    """Calls by session and id, each with its result to come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[tuple[str, str], Future[Result]] = OrderedDict()

    def run(self, session_id: str, call_id: str, start: Callable[[], Future[Result]]) -> Future[Result]:
        """The call that runs or ran already, else a new one."""
        with self._lock:
            found = self._calls.get((session_id, call_id))
            if found is None or found.cancelled():
                found = self._calls[session_id, call_id] = start()
                while len(self._calls) > REMEMBERED and next(iter(self._calls.values())).done():
                    self._calls.popitem(last=False)
            return found
