"""Schemas of functions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from contextd import ToolContext, tool


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclass
class Place:
    city: str
    country: str = "FR"
    tags: list[str] = field(default_factory=list)


class Range(TypedDict):
    low: int
    high: int


def weather(
    city: str,
    days: int = 3,
    unit: Unit = Unit.CELSIUS,
    detail: Literal["short", "long"] | None = None,
    note: Annotated[str, "For the log"] = "",
) -> str:
    """Forecast of a city.

    Works for most of them.

    Args:
        city: Name of the city,
            in English.
        days: How many days.

    Returns:
        The forecast.
    """
    return f"{city} {days} {unit.value} {detail}"


def test_a_schema_comes_from_hints_and_docstring() -> None:
    made = tool(weather)
    assert (made.name, made.description) == ("weather", "Forecast of a city.\n\nWorks for most of them.")
    assert made.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city, in English."},
            "days": {"type": "integer", "description": "How many days.", "default": 3},
            "unit": {"enum": ["celsius", "fahrenheit"], "type": "string"},
            "detail": {"anyOf": [{"enum": ["short", "long"], "type": "string"}, {"type": "null"}]},
            "note": {"type": "string", "description": "For the log", "default": ""},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


CONTEXT = ToolContext("s", "t", "c", "n", None, False)


def test_arguments_are_made_as_the_hints_say() -> None:
    made = tool(weather)
    assert made.bind('{"city": "Jena", "unit": "fahrenheit"}', CONTEXT)() == "Jena 3 fahrenheit None"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ("{}", "missing arguments: city"),
        ('{"city": "Jena", "town": 1}', "unknown arguments: town"),
        ('{"city": 7}', "7 is not of type str"),
        ('{"city": "Jena", "unit": "kelvin"}', "kelvin"),
        ("[1]", "not a JSON object"),
    ],
)
def test_wrong_arguments_are_named(arguments: str, wrong: str) -> None:
    with pytest.raises((TypeError, ValueError), match=wrong):
        tool(weather).bind(arguments, CONTEXT)


def test_nested_types_are_described_and_made() -> None:
    def visit(place: Place, ranges: list[Range], maybe: Optional[int] = None, extra: dict[str, float] = {}) -> Any:  # noqa: B006, UP045
        """Visits."""
        return place, ranges, maybe, extra

    made = tool(visit)
    properties = made.schema["properties"]
    assert properties["place"]["required"] == ["city"]
    assert properties["ranges"]["items"]["required"] == ["high", "low"]
    assert properties["maybe"] == {"type": ["integer", "null"]}
    assert properties["extra"] == {"type": "object", "additionalProperties": {"type": "number"}}
    place, ranges, maybe, extra = made.bind(
        '{"place": {"city": "Jena"}, "ranges": [{"low": 1, "high": 2}], "extra": {"x": 1}}', CONTEXT
    )()
    assert place == Place("Jena")
    assert (ranges, maybe, extra) == ([{"low": 1, "high": 2}], None, {"x": 1.0})


def test_sphinx_docstrings_are_read_too() -> None:
    def add(a: int, b: int) -> int:
        """Adds.

        :param a: One number.
        :param int b: The other one.
        :returns: The sum.
        """
        return a + b

    made = tool(add)
    assert made.description == "Adds."
    assert [made.schema["properties"][name]["description"] for name in "ab"] == ["One number.", "The other one."]


def test_a_schema_may_be_given() -> None:
    made = tool(name="raw", schema={"type": "object"})(lambda **given: given)
    assert made.bind('{"anything": 1}', CONTEXT)() == {"anything": 1}


def test_a_function_with_a_schema_of_its_own_gets_the_context_first() -> None:
    @tool(name="raw", schema={"type": "object"})
    def raw(of: ToolContext, /, **given: int) -> tuple[str, dict[str, int]]:
        return of.call_id, given

    assert raw.bind('{"of": 1}', CONTEXT)() == (CONTEXT.call_id, {"of": 1})


def test_hints_that_cannot_be_read_do_not_hinder_a_schema_of_its_own() -> None:
    def raw(**given: object) -> object:
        return given

    raw.__annotations__["given"] = "Missing"
    assert tool(schema={"type": "object"})(raw).bind('{"a": 1}', CONTEXT)() == {"a": 1}


def test_a_type_without_a_schema_is_refused_by_name() -> None:
    def bad(thing: object) -> None: ...

    with pytest.raises(TypeError, match="no JSON schema"):
        tool(bad)


def test_options_reach_the_definition() -> None:
    made = tool(timeout=5, needs_approval=False, strict=True, category="skills", max_output_chars=10)(weather)
    proto = made.to_proto()
    assert proto.timeout.seconds == 65  # the server waits longer than this process
    assert (proto.strict, proto.category, proto.output_limits.max_output_chars) == (True, 5, 10)
    # A person is given the usual time, whatever the tool itself may take.
    assert not tool(timeout=5, needs_approval=True)(weather).to_proto().HasField("timeout")


def test_pydantic_models_are_arguments() -> None:
    pydantic = pytest.importorskip("pydantic")
    Order = pydantic.create_model("Order", item=(str, ...), count=(int, 1))

    def order(what: Any) -> Any:
        """Orders."""
        return what

    order.__annotations__["what"] = Order
    made = tool(order)
    assert made.schema["properties"]["what"]["required"] == ["item"]
    assert made.bind('{"what": {"item": "tea"}}', CONTEXT)().count == 1
