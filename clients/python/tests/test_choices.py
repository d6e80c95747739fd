"""A value that there is not is a sentence that names the ones that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from contextd import tool
from contextd._core import operations as ops
from contextd.options import generation_of, limits_of

wait: Any = "wait"

CHOICES: dict[str, tuple[Callable[[], Any], str]] = {
    "busy": (lambda: ops.execute_turn("s", "hi", None, busy=wait), "busy is 'wait'; it is one of 'enqueue', 'reject'"),
    "delivery": (
        lambda: ops.enqueue("s", "hi", wait, False, None, None, None),
        "delivery is 'wait'; it is one of 'asap'",
    ),
    "format": (lambda: ops.append_messages("s", [], "[]", wait), "format is 'wait'; it is one of 'neutral'"),
    "view": (lambda: ops.list_messages("s", wait, False, 0).page(""), "view is 'wait'; it is one of 'all', 'live'"),
    "strategy": (
        lambda: ops.compact("s", wait, 0, "", "", True, False),
        "strategy is 'wait'; it is one of 'reactive_overflow'",
    ),
    "category": (lambda: tool(category=wait)(print_it).to_proto(), "category is 'wait'; it is one of 'tools'"),
    "reasoning_effort": (
        lambda: generation_of({"reasoning_effort": wait}),
        "reasoning_effort is 'wait'; it is one of 'none'",
    ),
    "limits": (lambda: limits_of(cast(Any, {"wait": 1})), "limits has no 'wait'; it takes max_steps"),
    "generation": (lambda: generation_of(cast(Any, {"wait": 1})), "generation has no 'wait'; it takes temperature"),
}


def print_it(text: str) -> None:
    """Prints."""


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_that_there_is_not_is_a_sentence(name: str) -> None:
    choose, sentence = CHOICES[name]
    with pytest.raises(ValueError, match=sentence):
        choose()
