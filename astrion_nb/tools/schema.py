"""From a function's signature to a JSON schema and a validator, by pydantic.

Imported when a tool's schema is first needed, so that importing the package does not pay for it.
Knows nothing of agents but that an :data:`~astrion_nb.tools.registry.AgentRef` is an integer in
the schema and may be a name in practice (decision 2).
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema

from ..errors import ConfigError, ToolError
from .plain import describe

_MOST_PARTS = 2_000
"""Schemas within a tool's schema, beyond which it keeps its references."""
_OF_NAMES = ("properties", "patternProperties", "dependentSchemas")
_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_OF_ONE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_BARE = re.compile(r"[\w.-]+")


class _Untitled(GenerateJsonSchema):
    """JSON schema without the titles that pydantic derives from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # Python takes True for 1
        raise ValueError("must be a number, not a boolean")
    return value


def _agent(value: Any) -> int | str:
    """Take an agent by number or name (decision 2)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be an agent_id (an integer) or a display name")
    return value


def _resolve(annotation: Any) -> Any:
    """Turn an agent reference into what pydantic understands; drop ``None`` from a union."""
    if annotation is int or annotation is float:
        return Annotated[(annotation, BeforeValidator(_number))]
    if get_origin(annotation) is Annotated:
        base, *metadata = get_args(annotation)
        if "astrion:agent" in metadata:
            return Annotated[Any, PlainValidator(_agent), WithJsonSchema({"type": "integer"})]
        if base is int or base is float:  # bounds first: they are the number's, and stand in the schema as such
            return Annotated[(base, *metadata, BeforeValidator(_number))]
        return Annotated[(_resolve(base), *metadata)]
    if get_origin(annotation) in (Union, types.UnionType):
        left = [item for item in get_args(annotation) if item is not type(None)]
        if len(left) == 1 and len(left) < len(get_args(annotation)):
            return _resolve(left[0])
    return annotation


def build(
    name: str, function: Callable[..., Any], context_parameter: str | None
) -> tuple[dict[str, Any], type[BaseModel], frozenset[str], frozenset[str]]:
    """Return schema, validator, parameter names and the names of the optional ones.

    Raises
    ------
    ConfigError
        A parameter's type is one that no JSON value can be of.
    """
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    names: list[str] = []
    optional: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == context_parameter:
            continue
        inner, text = describe(hints[parameter.name])
        required = parameter.default is inspect.Parameter.empty
        if not required:
            optional.add(parameter.name)
        # Under names of our own: a parameter may be called as pydantic's models call theirs.
        info = Field(... if required else parameter.default, alias=parameter.name, description=text)
        fields[f"p{len(fields)}"] = (_resolve(inner), info)
        names.append(parameter.name)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False, protected_namespaces=())
    try:
        model = create_model(name, __config__=config, **fields)
        schema = model.model_json_schema(schema_generator=_Untitled)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        told = str(error.message).split("\n")[0].split(". ")[0]
        raise ConfigError(f"tool {name!r}: a parameter's type has no JSON form ({told}); use plain types") from None
    schema = _inlined(schema)
    out: dict[str, Any] = {"type": "object", "properties": {}}
    for key, value in schema.get("properties", {}).items():
        value.pop("default", None)
        out["properties"][key] = _ordered(value)
    required_names = [key for key in names if key not in optional]
    if required_names:
        out["required"] = required_names
    if "$defs" in schema:
        out["$defs"] = schema["$defs"]
    return out, model, frozenset(names), frozenset(optional)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put every definition where it is referred to: not every endpoint follows references.

    A schema whose definitions hold themselves, or that would grow beyond measure, stays as it is.
    """
    defined = schema.get("$defs", {})
    room = _MOST_PARTS

    def filled(value: Any, inside: tuple[str, ...]) -> Any:
        """Fill in a schema."""
        nonlocal room
        room -= 1
        if room < 0:
            raise _StaysError
        if not isinstance(value, dict):  # true and false are schemas
            return value
        reference = value.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix("#/$defs/")
            if name in inside:
                raise _StaysError
            whole = {key: item for key, item in defined[name].items() if key != "title"}
            if isinstance(told := whole.get("description"), str):
                whole["description"] = told.split("\n\n")[0].replace("\n", " ")
            return filled({**whole, **{key: item for key, item in value.items() if key != "$ref"}}, (*inside, name))
        out: dict[str, Any] = {}
        for key, item in value.items():
            if key in _OF_NAMES and isinstance(item, dict):
                out[key] = {name: filled(one, inside) for name, one in item.items()}
            elif key in _OF_SCHEMAS and isinstance(item, list):
                out[key] = [filled(one, inside) for one in item]
            elif key in _OF_ONE:
                out[key] = filled(item, inside)
            elif key == "discriminator":  # it would name definitions that are gone
                continue
            elif key != "$defs":
                out[key] = item  # a value, such as a default: whatever it holds is no schema
        return out

    try:
        return cast("dict[str, Any]", filled(schema, ()))
    except _StaysError:
        return schema


class _StaysError(Exception):
    """A schema cannot be written without references."""


def _ordered(value: dict[str, Any]) -> dict[str, Any]:
    """Put ``type`` and ``enum`` before ``description``, as the specification prints them."""
    first: dict[str, Any] = {key: value[key] for key in ("type", "enum") if key in value}
    return {**first, **{key: item for key, item in value.items() if key not in first}}


def validate(model: type[BaseModel], data: dict[str, Any]) -> dict[str, Any]:
    """Validate arguments; return those that were given, converted.

    Raises
    ------
    ToolError
        One line naming each wrong field.
    """
    try:
        checked = model.model_validate(data)
    except ValidationError as error:
        raise ToolError("; ".join(_fault(item, model) for item in error.errors(include_url=False))) from None
    fields = model.model_fields
    return {str(fields[name].alias): getattr(checked, name) for name in fields if name in checked.model_fields_set}


def _fault(item: Any, model: type[BaseModel]) -> str:
    place = ".".join(str(part) for part in item["loc"]) if item["loc"] else "arguments"
    if not _BARE.fullmatch(place):  # a key may be anything: quoted, the line still says which
        place = repr(place)
    if item["type"] == "extra_forbidden":
        known = ", ".join(str(field.alias) for field in model.model_fields.values())
        return f"{place}: no such argument; known are {known or 'none'}"
    if item["type"] == "missing":
        return f"{place}: is required"
    said = item["msg"].removeprefix("Value error, ")
    return f"{place}: {said[0].lower()}{said[1:]}"
