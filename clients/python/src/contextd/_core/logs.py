"""The log messages of the logger `contextd`: failures that the developer of the host must see."""

from __future__ import annotations

import logging

from ..errors import Problem, ToolError
from ..tools import ApprovalRequest, ToolContext
from .status import is_broken_transport, may_pass

log = logging.getLogger("contextd")


def log_failed_tool(context: ToolContext, error: BaseException) -> None:
    """Logs an exception of a tool, except a `ToolError`. The model reads only one line of it."""
    if not isinstance(error, ToolError):
        log.error(
            "tool %s failed (call %s, session %s)",
            context.tool_name,
            context.call_id,
            context.session_id,
            exc_info=error,
        )


def log_failed_approval(request: ApprovalRequest, error: BaseException) -> None:
    """Logs that an approval callback raised an exception or returned no decision."""
    log.error(
        "call %s of tool %s was denied: the approval callback failed (session %s)",
        request.call_id,
        request.name,
        request.session_id,
        exc_info=error,
    )


class Outage:
    """Tracks an outage: its first failure and the first response after it are logged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lasts = False

    def failed(self, problem: Problem, seconds: float) -> None:
        """A call or stream failed; it is retried for at most this many seconds."""
        if not self._lasts and (may_pass(problem) or is_broken_transport(problem)):
            self._lasts = True
            cause = problem.reason or problem.message or problem.code
            log.warning("contextd at %s does not answer (%s); trying again for up to %.0f s", self._url, cause, seconds)

    def answered(self) -> None:
        """Records a response of the server."""
        if self._lasts:
            self._lasts = False
            log.info("contextd at %s answers again", self._url)
