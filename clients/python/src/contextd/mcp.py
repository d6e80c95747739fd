"""The tools of MCP servers as host tools. Takes the extra `contextd-client[mcp]`.

    session = client.session(tools=[*mcp_tools("uvx mcp-server-fetch"), *mcp_tools("https://example.com/mcp")])

contextd treats their results like those of other tools: they are cut to the tool's limits and pruned when they are old.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from ._sync.loop import LoopThread
from .content import Media, Piece
from .errors import ContextdError, ToolError
from .tools import Tool, ToolOutput

try:
    import httpx2
    import mcp
    from mcp.client.streamable_http import streamable_http_client
except ImportError as error:  # pragma: no cover
    raise ImportError("the tools of MCP servers take the extra: pip install 'contextd-client[mcp]'") from error

# Content that contextd takes inline.
MAX_MEDIA_BYTES = 3 * 1024 * 1024
CONNECT_SECONDS = 60.0
HTTP_SECONDS = 30.0
HTTP_READ_SECONDS = 300.0  # a tool may be silent for so long
_loop = LoopThread("contextd-mcp")


class McpServer:
    """A connection to an MCP server. A lost connection is opened again by the next call.

    Args:
        server: `http://` or `https://` address of a server that speaks streamable HTTP, or the command that starts a
            server that speaks over stdio: as one string, or as a list.
        headers: Headers of requests over HTTP, such as `Authorization`.
        env: Variables of the command, in addition to those that MCP's SDK passes on from this process.
        cwd: Working directory of the command.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._headers = dict(headers or {})
        if isinstance(server, str) and re.match(r"https?://", server):
            self._target: str | mcp.StdioServerParameters = server
        else:
            command = shlex.split(server) if isinstance(server, str) else list(server)
            self._target = mcp.StdioServerParameters(
                command=command[0], args=command[1:], env=dict(env) if env is not None else None, cwd=cwd
            )
        self._client: mcp.Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._connecting: asyncio.Lock | None = None

    def close(self) -> None:
        """Closes the connection. Stops the process of a server over stdio."""
        with contextlib.suppress(Exception):
            _loop.submit(self._close()).result(10)

    def definitions(self) -> Future[list[Any]]:
        """The server's own definitions of its tools."""
        return _loop.submit(self._definitions())

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Calls a tool. Can be called from any event loop."""
        return await asyncio.wrap_future(_loop.submit(self._call(name, arguments)))

    # --- What runs in the loop of its own ----------------------------------------------------------

    async def _definitions(self) -> list[Any]:
        client = await self._connected()
        found: list[Any] = []
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        client = await self._connected()
        try:
            result = await client.call_tool(name, arguments)
        except mcp.MCPError as error:
            raise ToolError(str(error)) from error
        except Exception:
            # It is not known whether the tool ran, so the call is not repeated; the model decides.
            await self._close()
            raise
        return output_of(result)

    async def _connected(self) -> mcp.Client:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._client is None or self._task is None or self._task.done():
                ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
                self._stop = asyncio.Event()
                self._task = asyncio.create_task(self._hold(ready, self._stop))
                try:
                    self._client = await asyncio.wait_for(ready, CONNECT_SECONDS)
                except asyncio.TimeoutError:
                    self._task.cancel()
                    raise ContextdError(f"the MCP server {self._target} does not respond") from None
            return self._client

    async def _hold(self, ready: asyncio.Future[mcp.Client], stop: asyncio.Event) -> None:
        """Holds the connection open; it must be opened and closed by one task."""
        try:
            async with self._open() as client:
                ready.set_result(client)
                await stop.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[mcp.Client]:
        if isinstance(self._target, str) and self._headers:
            timeout = httpx2.Timeout(HTTP_SECONDS, read=HTTP_READ_SECONDS)
            async with httpx2.AsyncClient(headers=self._headers, timeout=timeout, follow_redirects=True) as http:
                transport = streamable_http_client(self._target, http_client=http)
                async with mcp.Client(transport) as client:
                    yield client
        else:
            async with mcp.Client(self._target) as client:
                yield client

    async def _close(self) -> None:
        task, stop = self._task, self._stop
        self._client = self._task = self._stop = None
        if task is not None and stop is not None:
            stop.set()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.wait_for(task, 10)


class McpTools(list[Tool]):
    """The tools of a server. The connection stays open until `close` or the end of the process."""

    def __init__(self, server: McpServer, tools: list[Tool]) -> None:
        super().__init__(tools)
        self.server = server
        atexit.register(self.close)

    def close(self) -> None:
        """Closes the connection."""
        atexit.unregister(self.close)
        self.server.close()

    def __enter__(self) -> McpTools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def mcp_tools(
    server: str | Sequence[str],
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    prefix: str = "",
    only: Container[str] | None = None,
    timeout: float | None = None,
    needs_approval: bool | Callable[[str], bool] = False,
    max_output_chars: int | None = None,
) -> McpTools:
    """Connects to an MCP server and returns its tools, for `tools=[*mcp_tools(...)]`.

    Args:
        server: Address of the server, or the command that starts it; see `McpServer`.
        headers: Headers of requests over HTTP.
        env: Variables of the command.
        cwd: Working directory of the command.
        prefix: Prefix for the names of the tools, if two servers use the same names.
        only: Names of the tools to include. Default: all.
        timeout: Seconds after which a call is cancelled.
        needs_approval: Require a person's approval: for all tools, or for these names.
        max_output_chars: Maximum characters of an output that the model sees.
    """
    connection = McpServer(server, headers=headers, env=env, cwd=cwd)
    try:
        definitions = connection.definitions().result()
    except BaseException:
        connection.close()
        raise
    asks = needs_approval if callable(needs_approval) else lambda name: bool(needs_approval)
    tools = [
        Tool(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", prefix + each.name)[:64],
            description=each.description or each.title or "",
            schema=each.input_schema,
            function=_caller(connection, each.name),
            timeout=timeout,
            needs_approval=asks(each.name),
            category="mcp",
            max_output_chars=max_output_chars,
        )
        for each in definitions
        if only is None or each.name in only
    ]
    return McpTools(connection, tools)


async def mcp_tools_async(server: str | Sequence[str], **options: Any) -> McpTools:
    """The same as `mcp_tools`, but does not block the event loop while the server starts."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: mcp_tools(server, **options))


def _caller(connection: McpServer, name: str) -> Callable[..., Any]:
    async def call(**arguments: Any) -> ToolOutput:
        return await connection.call(name, arguments)

    return call


def output_of(result: Any) -> ToolOutput:
    """Converts a result of MCP to the output of a tool."""
    pieces = [_piece(content) for content in result.content]
    if not pieces and result.structured_content is not None:
        pieces = [json.dumps(result.structured_content, ensure_ascii=False)]
    return ToolOutput([piece for piece in pieces if piece != ""], is_error=bool(result.is_error))


def _piece(content: Any) -> Piece:
    if content.type == "text":
        return str(content.text)
    if content.type in ("image", "audio"):
        return _media(content.data, content.mime_type)
    if content.type == "resource_link":
        return f"{content.name}: {content.uri}"
    if content.type == "resource":
        resource = content.resource
        text = getattr(resource, "text", None)
        return str(text) if text is not None else _media(resource.blob, resource.mime_type)
    return f"[content of type {content.type}]"


def _media(data: str, media_type: str | None) -> Piece:
    content = base64.b64decode(data)
    if len(content) > MAX_MEDIA_BYTES:
        return f"[{media_type or 'content'} of {len(content)} bytes left out: too large]"
    return Media(media_type or "application/octet-stream", data=content)
