"""A client for contextd: agent turns that outlive connections, hosts and servers.

from contextd import Contextd

def get_weather(city: str) -> str:
    "Current weather of a city."
    return f"18 °C and sunny in {city}"

with Contextd() as client:
    session = client.session(tools=[get_weather])
    for event in session.run("What is the weather in Paris?"):
        if event.type == "text_delta":
            print(event.text, end="", flush=True)
"""

from . import errors, events
from ._aio.client import AsyncContextd
from ._aio.run import AsyncRun, AsyncWatch
from ._aio.session import AsyncSession
from ._core.settings import ConfigurationError
from ._sync.client import Contextd
from ._sync.run import Run, Watch
from ._sync.session import Session
from ._version import __version__
from .content import Input, Media, Message
from .errors import ApiError, ContextdError, InputNotTakenError, ToolError, TurnFailedError
from .events import AnyEvent, Event, TextDelta
from .options import Generation, Limits
from .results import Failure, Result, Usage
from .tools import Approval, ApprovalRequest, Tool, ToolContext, ToolOutput, tool
from .vendors import Prompt

__all__ = [
    "AnyEvent",
    "ApiError",
    "Approval",
    "ApprovalRequest",
    "AsyncContextd",
    "AsyncRun",
    "AsyncSession",
    "AsyncWatch",
    "ConfigurationError",
    "Contextd",
    "ContextdError",
    "Event",
    "Failure",
    "Generation",
    "Input",
    "InputNotTakenError",
    "Limits",
    "Media",
    "Message",
    "Prompt",
    "Result",
    "Run",
    "Session",
    "TextDelta",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "TurnFailedError",
    "Usage",
    "Watch",
    "__version__",
    "errors",
    "events",
    "tool",
]
