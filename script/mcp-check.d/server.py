"""An MCP server built with the official Python SDK, version 1 (sessions) or 2 (all revisions): server.py PORT

It only accepts tokens that begin with "issued-token-".
"""

import sys

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

PORT = int(sys.argv[1])


class Verifier:
    async def verify_token(self, token):
        if not token.startswith("issued-token-"):
            return None
        return AccessToken(token=token, client_id="contextd", scopes=[])


auth = {
    "token_verifier": Verifier(),
    "auth": AuthSettings(
        issuer_url="http://127.0.0.1/",
        resource_server_url=f"http://127.0.0.1:{PORT}/mcp",
        required_scopes=[],
    ),
}
place = {"host": "127.0.0.1", "port": PORT}
try:
    from mcp.server.mcpserver import MCPServer

    server, settings = MCPServer("check", **auth), place
except ImportError:
    from mcp.server.fastmcp import FastMCP

    server, settings = FastMCP("check", **auth, **place), {}


@server.tool()
def echo(text: str) -> str:
    """Gives the text back."""
    return text


server.run("streamable-http", **settings)
