"""Only an explicit yes lets a call run that needs approval."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness import Server

from contextd import Approval, ApprovalRequest, AsyncContextd, Contextd, tool
from contextd._core.approval import NOT_DECIDED


async def coroutine() -> bool:
    return True


class Truthy:
    def __bool__(self) -> bool:
        return True


def fails() -> Any:
    raise LookupError("no person is there")


# The answer, and whether the call may run.
ANSWERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "True": (lambda: True, True),
    "Approval(True)": (lambda: Approval(True), True),
    "Approval(True, arguments)": (lambda: Approval(True, {"path": "/tmp/y"}), True),
    "False": (lambda: False, False),
    "Approval(False)": (lambda: Approval(False, reason="no"), False),
    "None": (lambda: None, False),
    "a coroutine within a coroutine": (coroutine, False),
    "'no'": (lambda: "no", False),
    "'yes'": (lambda: "yes", False),
    "1": (lambda: 1, False),
    "{}": (dict, False),
    "{'approved': False}": (lambda: {"approved": False}, False),
    "{'approved': True}": (lambda: {"approved": True}, False),
    "[]": (list, False),
    "['no']": (lambda: ["no"], False),
    "an object": (Truthy, False),
    "Approval('no')": (lambda: Approval("no"), False),  # type: ignore[arg-type]
    "Approval({'approved': False})": (lambda: Approval({"approved": False}), False),  # type: ignore[arg-type]
    "Approval(True, 'arguments')": (lambda: Approval(True, "arguments"), False),  # type: ignore[arg-type]
    "Approval(True, {'x': object})": (lambda: Approval(True, {"x": object()}), False),
    "an exception": (fails, False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_only_an_explicit_yes_runs_the_call(name: str, client: Contextd) -> None:
    answer, runs = ANSWERS[name]
    ran: list[str] = []

    @tool(needs_approval=True)
    def delete_file(path: str) -> str:
        """Deletes a file."""
        ran.append(path)
        return "deleted"

    session = client.session(model="scripted/delete", tools=[delete_file])
    session.run("go", on_approval=lambda request: answer()).result()
    assert bool(ran) == runs


@pytest.mark.parametrize("name", ANSWERS)
async def test_only_an_explicit_yes_runs_the_call_of_a_coroutine(name: str, server: Server) -> None:
    answer, runs = ANSWERS[name]
    ran: list[str] = []

    @tool(needs_approval=True)
    def delete_file(path: str) -> str:
        """Deletes a file."""
        ran.append(path)
        return "deleted"

    async def decide(request: ApprovalRequest) -> Any:
        return answer()

    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/delete", tools=[delete_file])
        await session.run("go", on_approval=decide).result()
    assert bool(ran) == runs


def test_a_program_with_threads_cannot_give_a_coroutine_function(client: Contextd) -> None:
    async def decide(request: ApprovalRequest) -> bool:
        return True

    with pytest.raises(TypeError, match="AsyncContextd"):
        client.session(model="scripted/delete").run("go", on_approval=decide)  # type: ignore[arg-type]


def test_an_answer_that_is_no_decision_is_logged_and_the_model_is_not_shown_it(
    client: Contextd, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(needs_approval=True)
    def delete_file(path: str) -> str:
        """Deletes a file."""
        return "deleted"

    def decide(request: ApprovalRequest) -> bool:
        raise LookupError("the password is 1234")

    session = client.session(model="scripted/delete", tools=[delete_file])
    with caplog.at_level(logging.WARNING, logger="contextd"):
        answer = session.run_text("go", on_approval=decide)
    assert NOT_DECIDED in answer
    assert "1234" not in answer
    (record,) = [each for each in caplog.records if each.exc_info]
    assert "denied" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError


def test_an_exception_of_a_tool_is_logged_with_its_traceback(
    client: Contextd, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def broken() -> str:
        """Breaks."""
        raise LookupError("no such luck")

    with caplog.at_level(logging.WARNING, logger="contextd"):
        client.session(model="scripted/fail-tool", tools=[broken]).run_text("go")
    (record,) = [each for each in caplog.records if each.name == "contextd"]
    assert record.getMessage().startswith("tool broken failed (call ")
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError
