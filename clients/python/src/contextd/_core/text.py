"""Yields each piece of text once, even if the stream repeats it.

Each piece has its message, its part and its offset in bytes, so text that was yielded before is skipped. If a response
becomes void and is generated again (its replica crashed, the model's service failed), the new text is held back while
it equals the old one. If it differs, a reset is yielded before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Text to append. With `reset`, the text yielded for this message before is void."""

    message_id: str
    text: str
    reset: bool = False


class Answer:
    """The text of the open message as the caller has it, and as the server has it."""

    def __init__(self) -> None:
        self._message_id = ""
        self._parts: dict[int, bytes] = {}
        self._shown = b""

    def delta(self, message_id: str, index: int, offset: int, text: str) -> list[Piece]:
        """A piece was received."""
        self._open(message_id)
        self._put(index, offset, text)
        said = self._said()
        return [] if self._shown.startswith(said) else self._show(said)

    def whole(self, message_id: str, texts: Iterable[tuple[int, str]]) -> list[Piece]:
        """All text so far was received, as in `sync`."""
        self._open(message_id)
        for index, text in texts:
            self._put(index, 0, text)
        said = self._said()
        return [] if self._shown.startswith(said) else self._show(said)

    def commit(self, message_id: str, texts: Iterable[tuple[int, str]]) -> list[Piece]:
        """The message is final. Yields the rest of its text."""
        self._message_id, self._parts = message_id, {index: text.encode() for index, text in texts}
        pieces = self._show(self._said())
        self.__init__()  # type: ignore[misc]
        return pieces

    def _open(self, message_id: str) -> None:
        if message_id != self._message_id:  # the next message, or the next attempt at this one
            self._message_id, self._parts = message_id, {}

    def _put(self, index: int, offset: int, text: str) -> None:
        held = self._parts.get(index, b"")
        if offset <= len(held):  # else bytes are missing, which the committed message has
            self._parts[index] = held + text.encode()[len(held) - offset :]

    def _said(self) -> bytes:
        return b"".join(self._parts[index] for index in sorted(self._parts))

    def _show(self, said: bytes) -> list[Piece]:
        reset = not said.startswith(self._shown)
        new = said if reset else said[len(self._shown) :]
        self._shown = said
        if not new and not reset:
            return []
        return [Piece(self._message_id, new.decode(), reset)]
