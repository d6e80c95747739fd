"""The decisions of approval callbacks. Only an explicit approval lets a call run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from ..tools import Approval

# The reason that the model reads if the callback returned no valid decision. The details are logged.
NOT_DECIDED = "The host did not approve this call: its approval callback failed."


class InvalidApprovalError(TypeError):
    """An approval callback returned a value that is not a decision."""


def decision_of(answer: Any) -> Approval:
    """The decision: `True` and `Approval(True)` let the call run, `False` and `Approval(False)` deny it.

    Raises:
        InvalidApprovalError: For every other answer; the caller denies the call.
    """
    if answer is True or answer is False:
        return Approval(answer)
    if not isinstance(answer, Approval):
        raise InvalidApprovalError(_complaint(answer))
    if answer.approved is False:
        return Approval(False, reason=str(answer.reason))
    if answer.approved is not True:
        raise InvalidApprovalError(
            f"Approval.approved is of type {type(answer.approved).__name__}; it is True or False, nothing else"
        )
    if answer.arguments is None:
        return Approval(True)
    if not isinstance(answer.arguments, Mapping):
        raise InvalidApprovalError(
            f"Approval.arguments is of type {type(answer.arguments).__name__}; it is a mapping of names to values"
        )
    arguments = dict(answer.arguments)
    try:
        json.dumps(arguments)
    except (TypeError, ValueError) as error:
        raise InvalidApprovalError(f"Approval.arguments cannot be written as JSON: {error}") from None
    return Approval(True, arguments)


def _complaint(answer: Any) -> str:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()  # it will never be awaited
        return "on_approval returned a coroutine, which nothing awaits here; AsyncContextd takes coroutine functions"
    kind = type(answer).__name__
    return f"on_approval returned a value of type {kind}; only True and Approval(True) let the call run"
