"""An MCP server for tests: over stdio, or over HTTP on the port that is given."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("on purpose")


@server.tool()
def picture() -> ImageContent:
    """Draws."""
    return ImageContent(type="image", data="iVBORw0K", mime_type="image/png")


@server.tool()
def long() -> str:
    """Says a lot."""
    return "word " * 100_000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
