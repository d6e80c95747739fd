"""The content of messages, sent and received."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .v1 import message_pb2


@dataclass(frozen=True)
class Media:
    """An image, document, audio or video: its bytes, a stored blob, or a URL that the provider fetches."""

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    blob_id: str | None = None
    url: str | None = None
    filename: str = ""

    @classmethod
    def from_file(cls, path: str | Path, media_type: str | None = None) -> Media:
        """Reads a file of at most 3 MiB. Store larger files with `client.put_blob`."""
        path = Path(path)
        guessed = media_type or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return cls(guessed, data=path.read_bytes(), filename=path.name)

    def to_part(self) -> message_pb2.Part:
        """Converts it to a part of a message."""
        media = message_pb2.Media(media_type=self.media_type, filename=self.filename)
        if self.data is not None:
            media.data = self.data
        elif self.blob_id is not None:
            media.blob_id = self.blob_id
        elif self.url is not None:
            media.url = self.url
        else:
            raise ValueError("media takes data, blob_id or url")
        return message_pb2.Part(media=media)


Piece = Union[str, Media, message_pb2.Part]
Input = Union[Piece, Sequence[Piece], message_pb2.InputMessage]


def parts_of(content: Piece | Sequence[Piece]) -> list[message_pb2.Part]:
    """Converts text and media to parts."""
    if isinstance(content, (str, Media, message_pb2.Part)):
        content = [content]
    return [_part(piece) for piece in content]


def _part(piece: Piece) -> message_pb2.Part:
    if isinstance(piece, str):
        return message_pb2.Part(text=piece)
    return piece.to_part() if isinstance(piece, Media) else piece


def input_message(content: Input, metadata: Mapping[str, str] | None = None) -> message_pb2.InputMessage:
    """Converts a user message to the message of the API."""
    if isinstance(content, message_pb2.InputMessage):
        message = message_pb2.InputMessage()
        message.CopyFrom(content)
    else:
        message = message_pb2.InputMessage(parts=parts_of(content))
    message.metadata.update(metadata or {})
    return message


def enum_name(enum: Any, value: int, prefix: str) -> str:
    """Name of an enum value without the prefix of its enum: `"STOP"`. The number if the value is newer than this."""
    known = enum.DESCRIPTOR.values_by_number.get(value)
    return str(known.name).removeprefix(f"{prefix}_") if known else str(value)


def text_of(parts: Sequence[message_pb2.Part]) -> str:
    """The text of a message for users: its text parts and refusals."""
    return "".join(part.text or part.refusal for part in parts)


def result_text(parts: Sequence[message_pb2.Part]) -> str:
    """The text of a tool's result."""
    return "\n".join(part.text for part in parts if part.text)


@dataclass(frozen=True)
class Message:
    """A message of the transcript. `raw` is the whole message of the API."""

    id: str
    role: str
    text: str
    raw: message_pb2.Message = field(repr=False)

    @classmethod
    def of(cls, raw: message_pb2.Message) -> Message:
        """Converts a message of the API."""
        return cls(raw.message_id, enum_name(message_pb2.Role, raw.role, "ROLE"), text_of(raw.parts), raw)

    @property
    def parts(self) -> Sequence[message_pb2.Part]:
        """The content in order."""
        return self.raw.parts

    @property
    def tool_calls(self) -> list[message_pb2.ToolCall]:
        """The tool calls in the message."""
        return [part.tool_call for part in self.raw.parts if part.HasField("tool_call")]

    @property
    def tool_results(self) -> list[message_pb2.ToolResult]:
        """The tool results in the message."""
        return [part.tool_result for part in self.raw.parts if part.HasField("tool_result")]
