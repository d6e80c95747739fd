"""Settings of sessions and turns, as dictionaries with the names of the API. Durations are in seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, TypeVar, Union, get_args

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as ProtoMessage

from .v1 import context_pb2, generation_pb2, policy_pb2, queue_pb2, session_pb2, tool_pb2, turn_pb2, turn_service_pb2

Busy = Literal["enqueue", "reject", "interrupt"]
DeliveryMode = Literal["asap", "when_idle", "interrupt"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Format = Literal["neutral", "openai", "openai_responses", "anthropic", "gemini", "ai_sdk", "ai_sdk_7", "native"]
View = Literal["all", "live"]
Strategy = Literal["reactive_overflow", "proactive_threshold", "middle_removal", "truncation"]

BUSY: dict[str, turn_service_pb2.BusyPolicy.ValueType] = {
    "enqueue": turn_service_pb2.BUSY_POLICY_ENQUEUE,
    "reject": turn_service_pb2.BUSY_POLICY_REJECT,
    "interrupt": turn_service_pb2.BUSY_POLICY_INTERRUPT,
}
DELIVERY: dict[str, queue_pb2.Delivery.ValueType] = {
    "asap": queue_pb2.DELIVERY_ASAP,
    "when_idle": queue_pb2.DELIVERY_WHEN_IDLE,
    "interrupt": queue_pb2.DELIVERY_INTERRUPT,
}
FORMATS: dict[str, context_pb2.PromptFormat.ValueType] = {
    "neutral": context_pb2.PROMPT_FORMAT_NEUTRAL,
    "openai": context_pb2.PROMPT_FORMAT_OPENAI_CHAT,
    "openai_responses": context_pb2.PROMPT_FORMAT_OPENAI_RESPONSES,
    "anthropic": context_pb2.PROMPT_FORMAT_ANTHROPIC,
    "gemini": context_pb2.PROMPT_FORMAT_GEMINI,
    "ai_sdk": context_pb2.PROMPT_FORMAT_AI_SDK,
    "ai_sdk_7": context_pb2.PROMPT_FORMAT_AI_SDK_7,
    "native": context_pb2.PROMPT_FORMAT_NATIVE,
}
EFFORTS: dict[str, generation_pb2.ReasoningEffort.ValueType] = {
    name: generation_pb2.ReasoningEffort.Value(f"REASONING_EFFORT_{name.upper()}") for name in get_args(Effort)
}
STRATEGIES: dict[str, policy_pb2.CompactionStrategy.ValueType] = {
    "reactive_overflow": policy_pb2.COMPACTION_STRATEGY_REACTIVE_OVERFLOW,
    "proactive_threshold": policy_pb2.COMPACTION_STRATEGY_PROACTIVE_THRESHOLD,
    "middle_removal": policy_pb2.COMPACTION_STRATEGY_MIDDLE_REMOVAL,
    "truncation": policy_pb2.COMPACTION_STRATEGY_TRUNCATION,
}


class Limits(TypedDict, total=False):
    """Limits of a turn (`TurnLimits`)."""

    max_steps: int
    max_output_tokens: int
    max_total_tokens: int
    turn_timeout: float
    tool_timeout: float
    grace_period: float


class Generation(TypedDict, total=False):
    """Settings for the model's responses (`Generation`)."""

    temperature: float
    top_p: float
    top_k: int
    stop_sequences: list[str]
    seed: int
    reasoning_effort: Effort
    reasoning_budget_tokens: int
    tool_choice: str  # "auto", "none", "required", or the name of a tool
    parallel_tool_calls: bool
    response_schema: Mapping[str, Any]  # ask for JSON of this schema; {} for any object
    provider_options: Mapping[str, Any]


LimitsLike = Union[Limits, turn_pb2.TurnLimits]
GenerationLike = Union[Generation, generation_pb2.Generation]
P = TypeVar("P", bound=ProtoMessage)
V = TypeVar("V")


def chosen(name: str, value: str, choices: Mapping[str, V]) -> V:
    """Returns the value of a named choice. Raises a `ValueError` that lists the choices for any other name."""
    if isinstance(value, str) and value in choices:
        return choices[value]
    raise ValueError(f"{name} is {value!r}; it is one of {', '.join(repr(each) for each in choices)}")


def duration(seconds: float) -> Duration:
    """Converts seconds to a duration."""
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made


def known_fields(name: str, values: Mapping[str, Any], kind: type) -> None:
    """Raises a `ValueError` for an unknown field."""
    if unknown := [key for key in values if key not in kind.__annotations__]:
        raise ValueError(f"{name} has no {unknown[0]!r}; it takes {', '.join(kind.__annotations__)}")


def limits_of(limits: LimitsLike) -> turn_pb2.TurnLimits:
    """Converts limits to the message of the API."""
    if isinstance(limits, turn_pb2.TurnLimits):
        return limits
    values: dict[str, Any] = dict(limits)
    for name in ("turn_timeout", "tool_timeout", "grace_period"):
        if name in values:
            values[name] = duration(values[name])
    known_fields("limits", values, Limits)
    return turn_pb2.TurnLimits(**values)


def generation_of(generation: GenerationLike) -> generation_pb2.Generation:
    """Converts generation settings to the message of the API."""
    if isinstance(generation, generation_pb2.Generation):
        return generation
    values: dict[str, Any] = dict(generation)
    known_fields("generation", values, Generation)
    effort = values.pop("reasoning_effort", None)
    choice = values.pop("tool_choice", None)
    schema = values.pop("response_schema", None)
    options = values.pop("provider_options", None)
    made = generation_pb2.Generation(**values)
    if effort is not None:
        made.reasoning_effort = chosen("reasoning_effort", effort, EFFORTS)
    if choice in ("auto", "none", "required"):
        made.tool_choice.mode = generation_pb2.ToolChoiceMode.Value(f"TOOL_CHOICE_MODE_{choice.upper()}")
    elif choice is not None:
        made.tool_choice.tool_name = choice
    if schema is not None:
        made.response_format.SetInParent()
        if schema:
            made.response_format.json_schema.json = json.dumps(schema)
    if options is not None:
        made.provider_options_json = json.dumps(options)
    return made


def session_of(
    *,
    model: str | None = None,
    instructions: str | None = None,
    tools: tool_pb2.ToolSet | None = None,
    pinned: Mapping[str, str] | None = None,
    limits: LimitsLike | None = None,
    generation: GenerationLike | None = None,
    policy: str | None = None,
    policy_overrides: policy_pb2.Policy | None = None,
    metadata: Mapping[str, str] | None = None,
    ttl: float | None = None,
) -> session_pb2.Session:
    """Converts the configuration of a session to the message of the API."""
    return session_pb2.Session(
        model=model or "",
        system_prompt=instructions or "",
        tools=tools,
        pinned_blocks=[session_pb2.PinnedBlock(name=name, text=text) for name, text in (pinned or {}).items()],
        limits=limits_of(limits) if limits else None,
        generation=generation_of(generation) if generation else None,
        policy=policy or "",
        policy_overrides=policy_overrides,
        metadata=dict(metadata or {}),
        ttl=duration(ttl) if ttl is not None else None,
    )
