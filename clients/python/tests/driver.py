"""One turn for `contextd conformance`: docs/conformance.md has the protocol."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from contextd import Contextd, ToolContext, tool
from contextd.errors import ContextdError
from contextd.tools import ApprovalRequest

LOCK = threading.Lock()


def say(**line: Any) -> None:
    with LOCK:
        print(json.dumps(line), flush=True)


def began(context: ToolContext, **args: Any) -> None:
    say(tool=context.tool_name, call=context.call_id, args=args)


def add(a: int, b: int, context: ToolContext) -> str:
    began(context, a=a, b=b)
    return str(a + b)


def slow(ms: int, context: ToolContext) -> str:
    began(context, ms=ms)
    threading.Event().wait(ms / 1000)
    return "done"


def large(chars: int, context: ToolContext) -> str:
    began(context, chars=chars)
    return "x" * chars


@tool(needs_approval=True)
def delete(name: str, context: ToolContext) -> str:
    began(context, name=name)
    return f"deleted {name}"


def decide(request: ApprovalRequest) -> bool:
    return not str(request.arguments["name"]).startswith("keep")


with Contextd() as client:
    try:
        session = client.session(os.environ["CONTEXTD_CONFORMANCE_SESSION"], tools=[add, slow, large, delete])
        run = session.run(os.environ["CONTEXTD_CONFORMANCE_INPUT"], on_approval=decide)
        for event in run:
            if event.type == "text_delta":
                say(text=event.text)
            elif event.type == "text_reset":
                say(reset=True)
        result = run.result()
        say(end={"state": result.state, "reason": result.reason, "text": result.text, "turn": result.turn_id})
    except ContextdError as error:
        say(error=str(error))
