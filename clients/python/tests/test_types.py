"""What type checkers know: this file is checked by mypy, and run."""

from __future__ import annotations

from typing import get_args

from contextd import AnyEvent, Contextd, events
from contextd.v1 import event_pb2


def test_the_type_of_an_event_says_which_fields_it_has(client: Contextd) -> None:
    text = ""
    for event in client.session(model="scripted/echo").run("hello"):
        if event.type == "text_delta":
            text += event.text
        elif event.type == "turn_completed":
            assert event.reason == "STOP"
        elif event.type == "step_started":
            assert event.payload.model == "scripted/echo"
    assert text == "You said: hello"


def test_every_payload_of_the_proto_has_a_class() -> None:
    payloads = {field.name for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    classes = {each.type for each in get_args(AnyEvent)}
    assert payloads - {"heartbeat", "sync"} == classes - {"text_reset", "reasoning_reset", "unknown"}


def test_a_payload_that_is_newer_than_this_is_unknown() -> None:
    assert isinstance(events.event_of(event_pb2.Event(seq=7)), events.UnknownEvent)
