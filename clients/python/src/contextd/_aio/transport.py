"""Calls over gRPC: one channel for each host, the next one after a failure."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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


def problem_from(error: grpc.aio.AioRpcError) -> Problem:
    """The error of a failed call."""
    return problem_of(error.code(), error.details(), error.trailing_metadata())


class Transport:
    """The connections of a client. They are made with the first call, in the loop that makes it."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._secure = parts.credentials(settings)
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: list[dict[str, Any]] = []
        self._next = random.randrange(len(settings.targets))
        self._reached = False
        self._outage = Outage(settings.url)
        self.metadata = call_metadata(settings)
        self.timeout = timeout

    def _connect(self) -> None:
        for target in self._settings.targets:
            channel = (
                grpc.aio.secure_channel(target, self._secure, parts.options())
                if self._secure
                else grpc.aio.insecure_channel(target, parts.options())
            )
            self._channels.append(channel)
            self._stubs.append({name: stub(channel) for name, stub in parts.STUBS.items()})

    def pick(self, service: str) -> Any:
        """Returns the stub of the next host, in rotation."""
        if not self._stubs:
            self._connect()
        self._next = (self._next + 1) % len(self._stubs)
        return self._stubs[self._next][service]

    async def call(self, operation: Operation[T], timeout: float | None = None) -> T:
        """Makes a unary call. Retries transient errors until `timeout`."""
        ends = time.monotonic() + (self.timeout if timeout is None else timeout)
        return await self.again(lambda left: self.once(operation, left), ends)

    async def again(self, attempt: Callable[[float], Awaitable[T]], ends: float) -> T:
        """Repeats an attempt after transient errors, until `ends`."""
        await self._contact(ends)
        failures, known = 0, None
        while True:
            try:
                answer = await attempt(max(ends - time.monotonic(), 0.001))
            except grpc.aio.AioRpcError as error:
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
            await asyncio.sleep(wait)

    async def _contact(self, ends: float) -> None:
        """Waits for the first connection of this client. Later outages are handled by the retries of each call."""
        if self._reached:
            return
        if not self._stubs:
            self._connect()
        waits = [asyncio.ensure_future(each.channel_ready()) for each in self._channels]
        left = min(CONTACT_SECONDS - PROBE_SECONDS, ends - time.monotonic())
        try:
            done, _ = await asyncio.wait(waits, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if not done and (error := await asyncio.to_thread(unreachable, self._settings)):
            raise error
        self._reached = True

    def failed(self, problem: Problem, seconds: float) -> None:
        """Records a transient failure. The first failure of an outage is logged."""
        self._outage.failed(problem, seconds)

    def answered(self) -> None:
        """Records a response of the server."""
        self._outage.answered()

    async def once(self, operation: Operation[T], timeout: float) -> T:
        """Makes a unary call, once. Raises `grpc.aio.AioRpcError`."""
        method = getattr(self.pick(operation.service), operation.method)
        return operation.decode(await method(operation.request, timeout=timeout, metadata=self.metadata))

    async def items(self, listing: Listing[T], limit: int | None = None) -> AsyncIterator[T]:
        """Iterates over a list, which is read page by page."""
        token, left = "", limit
        while left is None or left > 0:
            page, token = await self.call(listing.page(token))
            for item in page[:left]:
                yield item
            left = None if left is None else left - len(page)
            if not token:
                return

    def stream(self, service: str, method: str, request: Any) -> Any:
        """Opens a stream."""
        return getattr(self.pick(service), method)(request, metadata=self.metadata)

    async def close(self) -> None:
        """Closes the connections."""
        for each in self._channels:
            await each.close()
