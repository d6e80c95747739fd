"""JSON schemas of functions from their type hints and docstrings, and their arguments from JSON."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]

SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}
_NOT_REQUIRED = tuple(kind for kind in [getattr(typing, "NotRequired", None)] if kind is not None)
UNIONS = (Union, types.UnionType)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One argument of a tool."""

    name: str
    hint: Any
    required: bool


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parameters of a function: their schema for the model, and how to call it."""

    schema: Schema
    parameters: tuple[Parameter, ...]
    description: str
    context_parameter: str | None


def signature_of(function: Callable[..., Any], context_type: type) -> Signature:
    """Reads the parameters of a function. One of `context_type` is not part of the schema."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"the type hints of {function.__name__} cannot be read: {error}") from None
    description, described = parse_docstring(inspect.getdoc(function) or "")
    properties: Schema = {}
    parameters: list[Parameter] = []
    context_parameter = None
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, str)
        if hint is context_type:
            context_parameter = name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}({parameter}): a tool takes named arguments only")
        required = parameter.default is parameter.empty
        prop = schema_of(hint)
        if name in described:
            prop.setdefault("description", described[name])
        if not required and _is_json(parameter.default) and parameter.default is not None:
            prop["default"] = parameter.default
        properties[name] = prop
        parameters.append(Parameter(name, hint, required))
    schema: Schema = {"type": "object", "properties": properties}
    if required_names := [parameter.name for parameter in parameters if parameter.required]:
        schema["required"] = required_names
    schema["additionalProperties"] = False
    return Signature(schema, tuple(parameters), description, context_parameter)


def takes_context(function: Callable[..., Any], context_type: type) -> bool:
    """Whether the first parameter is of `context_type`. `False` for a function whose hints cannot be read."""
    try:
        first = next(iter(inspect.signature(function).parameters), None)
        return first is not None and get_type_hints(function).get(first) is context_type
    except (NameError, TypeError, ValueError):
        return False


def schema_of(hint: Any) -> Schema:
    """The schema of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments)
    if hint in SIMPLE:
        return dict(SIMPLE[hint])
    if origin in _NOT_REQUIRED:
        return schema_of(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)} | _type_of_values(arguments)
    if origin in UNIONS:
        return _union(arguments)
    if origin in (list, set, frozenset, Sequence) or hint in (list, set):
        return {"type": "array", "items": schema_of(arguments[0]) if arguments else {}}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin in (dict, Mapping) or hint is dict:
        values = schema_of(arguments[1]) if arguments else {}
        return {"type": "object", "additionalProperties": values or True}
    return _class(hint)


def _annotated(arguments: tuple[Any, ...]) -> Schema:
    schema = schema_of(arguments[0])
    for note in arguments[1:]:
        if isinstance(note, str):
            schema["description"] = note
        elif isinstance(note, Mapping):
            schema |= note
        elif isinstance(described := getattr(note, "description", None), str):  # pydantic.Field
            schema["description"] = described
    return schema


def _union(arguments: tuple[Any, ...]) -> Schema:
    schemas = [schema_of(argument) for argument in arguments]
    if all(set(schema) == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _class(hint: Any) -> Schema:
    if hint is Any or hint is inspect.Parameter.empty:
        return {}
    if hasattr(hint, "model_json_schema"):  # pydantic
        return dict(hint.model_json_schema())
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = [member.value for member in hint]
        return {"enum": values} | _type_of_values(values)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        needed = [f.name for f in dataclasses.fields(hint) if f.init and _has_no_default(f)]
        return _object({f.name: hints[f.name] for f in dataclasses.fields(hint) if f.init}, needed)
    if typing.is_typeddict(hint):
        needed = sorted(hint.__required_keys__)
        return _object(get_type_hints(hint, include_extras=True), needed)
    raise TypeError(f"no JSON schema for {hint!r}: give the tool a schema of its own with @tool(schema=...)")


def _object(hints: Mapping[str, Any], needed: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": {name: schema_of(hint) for name, hint in hints.items()}}
    if needed:
        schema["required"] = needed
    return schema


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _type_of_values(values: Sequence[Any]) -> Schema:
    kinds = {type(value) for value in values}
    return dict(SIMPLE[kinds.pop()]) if len(kinds) == 1 and kinds <= set(SIMPLE) else {}


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def arguments_for(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the arguments that the model wrote to those of the function. Raises an exception for unknown ones."""
    known = {parameter.name: parameter for parameter in signature.parameters}
    if unknown := sorted(set(arguments) - set(known)):
        raise TypeError(f"unknown arguments: {', '.join(unknown)}")
    if missing := [p.name for p in signature.parameters if p.required and p.name not in arguments]:
        raise TypeError(f"missing arguments: {', '.join(missing)}")
    return {name: build(known[name].hint, value) for name, value in arguments.items()}


def build(hint: Any, value: Any) -> Any:
    """Converts a JSON value to a type: to a dataclass, an enum or a pydantic model. Other values are unchanged."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated or origin in _NOT_REQUIRED:
        return build(arguments[0], value)
    if origin in UNIONS:
        return _build_union(arguments, value)
    if origin in (list, set, frozenset, tuple) and arguments and isinstance(value, list):
        return origin(build(arguments[0], item) for item in value)
    if origin is dict and arguments and isinstance(value, dict):
        return {key: build(arguments[1], item) for key, item in value.items()}
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: build(hints.get(name, Any), item) for name, item in value.items()})
    if hint is float and isinstance(value, int):
        return float(value)
    if hint in (str, int, float, bool) and not isinstance(value, hint):
        raise TypeError(f"{value!r} is not of type {hint.__name__}")
    return value


def _build_union(arguments: tuple[Any, ...], value: Any) -> Any:
    for argument in arguments:
        if argument is type(None):
            if value is None:
                return None
            continue
        try:
            return build(argument, value)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{value!r} is none of the allowed types")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description of a function and of each argument (`Args:` in Google's style, or `:param name:`)."""
    described = {name: said.strip() for name, said in re.findall(r"^:param (?:\S+ )?(\w+):(.*)$", text, re.M)}
    text = re.sub(r"^:(param|returns?|raises?|type|rtype)\b.*$", "", text, flags=re.M)
    section = re.search(r"^(?:Args|Arguments|Parameters):\s*\n((?:[ \t]+.*\n?|\s*\n)*)", text, re.M)
    if section:
        described |= _argument_lines(section[1])
        text = text[: section.start()] + text[section.end() :]
    text = re.sub(r"^(?:Returns|Raises|Yields|Examples?):\s*\n((?:[ \t]+.*\n?|\s*\n)*)", "", text, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), described


def _argument_lines(section: str) -> dict[str, str]:
    described: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(section).splitlines():
        if found := re.match(r"\*{0,2}(\w+)(?: \([^)]*\))?:\s*(.*)", line):
            name, described[found[1]] = found[1], found[2]
        elif name and line.strip():
            described[name] = f"{described[name]} {line.strip()}".strip()
    return described
