"""Bring your own loop: prompts in the format of a vendor's SDK, and its responses as messages and usage.

prompt = session.prepare(format="openai")
answer = openai.chat.completions.create(**prompt.request)
session.record(answer, prompt)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .v1 import context_pb2, context_service_pb2, usage_pb2

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """The next prompt, which fits the context window.

    `request` is the body of the vendor's request, ready to be passed to its SDK as keyword arguments; for the format
    `"neutral"` it is empty, and `raw` has the messages.
    """

    format: str
    model: str
    request: JsonObject
    version: int
    tokens: int
    report: context_service_pb2.PrepareReport = field(repr=False)
    raw: context_pb2.Prompt = field(repr=False)


def prompt_of(
    format: str,
    answer: context_service_pb2.PrepareContextResponse,
    body: bytes | None,
    stream: bool,
) -> Prompt:
    """Converts a prompt of the API. `body` is the content of `request_blob`, if the prompt is in a blob."""
    raw = answer.prompt
    text = body.decode() if body is not None else raw.request_json
    request: JsonObject = json.loads(text) if text else {}
    if not stream:
        request.pop("stream", None)
        request.pop("stream_options", None)
    return Prompt(format, raw.model, request, raw.context_version, raw.tokens.tokens, answer.report, raw)


@dataclass(frozen=True)
class Answer:
    """A model's response in the vendor's format, and its usage."""

    messages: list[Any]
    usage: usage_pb2.Usage | None


def answer_of(format: str, response: Any) -> Answer:
    """Reads the response of a vendor's SDK, as an object or as a dictionary."""
    reader = _READERS.get(format)
    if reader is None:
        raise ValueError(f"no responses of format {format!r} are known: append messages and record usage by themselves")
    return reader(as_dict(response))


def as_dict(response: Any) -> JsonObject:
    """A response as plain data."""
    if isinstance(response, Mapping):
        return dict(response)
    if callable(dump := getattr(response, "model_dump", None)):  # of pydantic, which all these SDKs use
        return dict(dump(mode="json", by_alias=True, exclude_none=True))
    raise TypeError(f"{type(response).__name__} is not a response of a vendor's SDK, nor a dictionary")


def messages_json(messages: Sequence[Any]) -> str:
    """Messages of a vendor's SDK as JSON."""
    plain = [message if isinstance(message, Mapping) else as_dict(message) for message in messages]
    return json.dumps(plain, ensure_ascii=False)


def _usage(found: Mapping[str, Any], **numbers: int | None) -> usage_pb2.Usage:
    known = {name: number for name, number in numbers.items() if number}
    return usage_pb2.Usage(provider_usage_json=json.dumps(found), **known)


def _openai(response: JsonObject) -> Answer:
    message = dict(response["choices"][0]["message"])
    message = {key: value for key, value in message.items() if value is not None}
    found = response.get("usage")
    if not found:
        return Answer([message], None)
    prompt_details = found.get("prompt_tokens_details") or {}
    answer_details = found.get("completion_tokens_details") or {}
    usage = _usage(
        found,
        input_tokens=found.get("prompt_tokens"),
        output_tokens=found.get("completion_tokens"),
        reasoning_tokens=answer_details.get("reasoning_tokens"),
        cache_read_tokens=prompt_details.get("cached_tokens"),
        cache_write_tokens=prompt_details.get("cache_write_tokens"),
    )
    return Answer([message], usage)


def _openai_responses(response: JsonObject) -> Answer:
    found = response.get("usage")
    if not found:
        return Answer(list(response["output"]), None)
    prompt_details = found.get("input_tokens_details") or {}
    answer_details = found.get("output_tokens_details") or {}
    usage = _usage(
        found,
        input_tokens=found.get("input_tokens"),
        output_tokens=found.get("output_tokens"),
        reasoning_tokens=answer_details.get("reasoning_tokens"),
        cache_read_tokens=prompt_details.get("cached_tokens"),
        cache_write_tokens=prompt_details.get("cache_write_tokens"),
    )
    return Answer(list(response["output"]), usage)


def _anthropic(response: JsonObject) -> Answer:
    message = {"role": "assistant", "content": response["content"]}
    found = response.get("usage")
    if not found:
        return Answer([message], None)
    read, written = found.get("cache_read_input_tokens") or 0, found.get("cache_creation_input_tokens") or 0
    usage = _usage(
        found,
        input_tokens=(found.get("input_tokens") or 0) + read + written,
        output_tokens=found.get("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    return Answer([message], usage)


def _gemini(response: JsonObject) -> Answer:
    content = response["candidates"][0]["content"]
    found = response.get("usageMetadata") or response.get("usage_metadata")
    if not found:
        return Answer([content], None)

    def number(camel: str, snake: str) -> int:
        return int(found.get(camel) or found.get(snake) or 0)

    thoughts = number("thoughtsTokenCount", "thoughts_token_count")
    usage = _usage(
        found,
        input_tokens=number("promptTokenCount", "prompt_token_count"),
        output_tokens=number("candidatesTokenCount", "candidates_token_count") + thoughts,
        reasoning_tokens=thoughts,
        cache_read_tokens=number("cachedContentTokenCount", "cached_content_token_count"),
    )
    return Answer([content], usage)


_READERS: dict[str, Callable[[JsonObject], Answer]] = {
    "openai": _openai,
    "openai_responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
