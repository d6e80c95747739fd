"""Calls over gRPC: one channel for each host, the next one after a failure."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from .._core import channel as parts
from .._core.backoff import delay
from .._core.logs import Outage
from .._core.operations import Listing, Operation
from .._core.settings import Settings, call_metadata
from .._core.status import may_pass, problem_of
from .._probe import CONTACT_SECONDS, PROBE_SECONDS, unreachable
from ..errors import Problem, error_of

T = TypeVar("T")
HEALTH = "/grpc.health.v1.Health/Check"
# What a call that reached no server ends with.
NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def problem_from(error: grpc.RpcError) -> Problem:
    """The error of a failed call."""
    if isinstance(error, grpc.Call):
        return problem_of(error.code(), error.details(), error.trailing_metadata())
    return Problem("UNAVAILABLE", str(error))


class Transport:
    """The connections of a client."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._reached = False
        self._outage = Outage(settings.url)
        secure = parts.credentials(settings)
        self._channels = [
            grpc.secure_channel(target, secure, parts.options())
            if secure
            else grpc.insecure_channel(target, parts.options())
            for target in settings.targets
        ]
        self._stubs = [{name: stub(each) for name, stub in parts.STUBS.items()} for each in self._channels]
        self._next = random.randrange(len(self._stubs))
        self.metadata = call_metadata(settings)
        self.timeout = timeout
        self._lock = threading.Lock()

    def pick(self, service: str) -> Any:
        """Returns the stub of the next host, in rotation."""
        with self._lock:
            self._next = (self._next + 1) % len(self._stubs)
            return self._stubs[self._next][service]

    def call(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Makes a unary call. Retries transient errors until `timeout`."""
        ends = time.monotonic() + (self.timeout if timeout is None else timeout)
        return self.again(lambda left: self.once(operation, left), ends)

    def again(self, attempt: Callable[[float], T], ends: float) -> T:
        """Repeats an attempt after transient errors, until `ends`."""
        self._contact(ends)
        failures, known = 0, None
        while True:
            try:
                answer = attempt(max(ends - time.monotonic(), 0.001))
            except grpc.RpcError as error:
                problem = problem_from(error)
                wait = delay(failures, problem.retry_after, random.random())
                again = may_pass(problem) or problem.reason == "RATE_LIMITED"
                if problem.reason or problem.code != "DEADLINE_EXCEEDED":
                    known = problem  # more specific than the timeout
                if not again or time.monotonic() + wait >= ends:
                    raise error_of(known or problem) from error
                self.failed(problem, ends - time.monotonic())
            else:
                self.answered()
                return answer
            failures += 1
            time.sleep(wait)

    def _contact(self, ends: float) -> None:
        """Waits for the first connection of this client. Later outages are handled by the retries of each call."""
        if self._reached:
            return
        left = max(min(CONTACT_SECONDS - PROBE_SECONDS, ends - time.monotonic()), 0.001)
        settled = threading.Event()
        answered: list[bool] = []

        def done(call: Any) -> None:
            code = grpc.StatusCode.CANCELLED if call.cancelled() else call.code()
            answered.append(code not in NO_ANSWER)
            if answered[-1] or len(answered) == len(calls):
                settled.set()

        # Any answer is one. Watching the state of a channel would be another way, whose thread can hang the exit.
        calls: list[Any] = [each.unary_unary(HEALTH) for each in self._channels]
        asked = [call.future(b"", timeout=left, wait_for_ready=True) for call in calls]
        for each in asked:
            each.add_done_callback(done)
        settled.wait(left + 0.1)
        for each in asked:
            each.cancel()
        if not any(answered) and (error := unreachable(self._settings)):
            raise error
        self._reached = True

    def failed(self, problem: Problem, seconds: float) -> None:
        """Records a transient failure. The first failure of an outage is logged."""
        self._outage.failed(problem, seconds)

    def answered(self) -> None:
        """Records a response of the server."""
        self._outage.answered()

    def once(self, operation: Operation[T], timeout: float) -> T:
        """Makes a unary call, once. Raises `grpc.RpcError`."""
        method = getattr(self.pick(operation.service), operation.method)
        return operation.decode(method(operation.request, timeout=timeout, metadata=self.metadata))

    def items(self, listing: Listing[T], limit: int | None = None) -> Iterator[T]:
        """Iterates over a list, which is read page by page."""
        token, left = "", limit
        while left is None or left > 0:
            page, token = self.call(listing.page(token))
            yield from page[:left]
            left = None if left is None else left - len(page)
            if not token:
                return

    def stream(self, service: str, method: str, request: Any) -> Any:
        """Opens a stream."""
        return getattr(self.pick(service), method)(request, metadata=self.metadata)

    def close(self) -> None:
        """Closes the connections."""
        for each in self._channels:
            each.close()
