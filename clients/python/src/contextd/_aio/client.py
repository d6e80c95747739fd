"""The client, for programs with asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping

from .._core import operations as ops
from .._core.settings import settings
from ..content import Input, Media, input_message
from ..errors import SessionAlreadyExistsError, SessionNotFoundError
from ..options import GenerationLike, LimitsLike, session_of
from ..tools import ToolLike, tool_set, tools_by_name
from ..v1 import model_pb2, policy_pb2, session_pb2
from .blobs import get_blob, put_blob
from .run import Host
from .session import AsyncSession
from .transport import Transport


class AsyncContextd:
    """A client of contextd.

    Args:
        url: `http://host:7070` (plain text), `https://host` (TLS), several hosts by comma, or `dns:///name:7070`.
            Default: `CONTEXTD_URL`, else http://127.0.0.1:7070.
        api_key: Default: `CONTEXTD_API_KEY`.
        ca_file: Certificate authorities (PEM) of the server. Default: `CONTEXTD_CA_FILE`, else those of gRPC.
        cert_file: A client certificate (PEM). Default: `CONTEXTD_CERT_FILE`.
        key_file: The private key of the certificate (PEM). Default: `CONTEXTD_KEY_FILE`.
        timeout: Seconds for which a call is retried. Runs of turns use `reconnect_for` instead.
        reconnect_for: Seconds without a reachable server after which a run or a watch fails.
        max_parallel_tools: Maximum number of tools that run at the same time.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        timeout: float = 60.0,
        reconnect_for: float = 300.0,
        max_parallel_tools: int = 32,
    ) -> None:
        found = settings(os.environ, url, api_key, ca_file, cert_file, key_file)
        self._transport = Transport(found, timeout)
        self._host = Host(self._transport, max_parallel_tools, reconnect_for)

    async def __aenter__(self) -> AsyncContextd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Running turns continue on the server."""
        await self._host.close()
        await self._transport.close()

    async def session(
        self,
        id: str | None = None,
        *,
        model: str | None = None,
        instructions: str | None = None,
        tools: Iterable[ToolLike] | None = None,
        pinned: Mapping[str, str] | None = None,
        limits: LimitsLike | None = None,
        generation: GenerationLike | None = None,
        policy: str | None = None,
        policy_overrides: policy_pb2.Policy | None = None,
        metadata: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> AsyncSession:
        """Opens a session, or creates it. The settings given here also change a session that exists.

        Args:
            id: Id of the session, chosen by you. Default: a new session with an id chosen by the server.
            model: Model reference, `PROVIDER/MODEL`. Default: the server's default model.
            instructions: System prompt, at the beginning of every prompt.
            tools: Tools of the session's turns: functions, or tools made by `@tool` or `mcp_tools`.
            pinned: Texts by name, which follow the instructions and are not changed by compactions.
            limits: Limits of the session's turns.
            generation: Settings for the model's responses.
            policy: Name of the context policy.
            policy_overrides: Changes to the policy for this session.
            metadata: Labels of the session.
            ttl: Seconds without use after which the session is deleted.
        """
        tools = list(tools) if tools is not None else None
        config = session_of(
            model=model,
            instructions=instructions,
            tools=tool_set(tools_by_name(tools)) if tools is not None else None,
            pinned=pinned,
            limits=limits,
            generation=generation,
            policy=policy,
            policy_overrides=policy_overrides,
            metadata=metadata,
            ttl=ttl,
        )
        return AsyncSession(self._host, await self._open(id, config), tools)

    async def _open(self, session_id: str | None, config: session_pb2.Session) -> session_pb2.Session:
        if session_id is None:
            return await self._transport.call(ops.create_session(None, config))
        changes = config.ByteSize() > 0
        opening = ops.update_session(session_id, config) if changes else ops.get_session(session_id)
        try:
            return await self._transport.call(opening)
        except SessionNotFoundError:
            pass
        try:
            return await self._transport.call(ops.create_session(session_id, config))
        except SessionAlreadyExistsError:  # another host was faster
            return await self._transport.call(opening)

    def sessions(self) -> AsyncIterator[session_pb2.Session]:
        """Lists all sessions, most recently updated first."""
        return self._transport.items(ops.list_sessions())

    def models(self, provider: str = "") -> AsyncIterator[model_pb2.Model]:
        """Lists the models that sessions can use."""
        return self._transport.items(ops.list_models(provider))

    async def count_tokens(
        self,
        content: Input,
        *,
        model: str = "",
        instructions: str = "",
        tools: Iterable[ToolLike] | None = None,
        exact: bool = False,
    ) -> int:
        """Counts the tokens of a prompt with this content."""
        offered = tools_by_name(tools) if tools is not None else None
        operation = ops.count_tokens([input_message(content)], model, "", instructions, offered, exact)
        return (await self._transport.call(operation)).total.tokens

    async def put_blob(self, data: bytes, media_type: str) -> Media:
        """Stores content that is too large for a message. Use the returned value as a part of the input."""
        return await put_blob(self._transport, data, media_type)

    async def get_blob(self, blob_id: str) -> bytes:
        """Reads stored content, such as the full output of a tool whose result was cut."""
        return await get_blob(self._transport, blob_id)
