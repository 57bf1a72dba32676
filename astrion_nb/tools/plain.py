"""The JSON schema of a signature made of plain types, without pydantic.

A team's first request needs the schemas of all its tools and validates nothing yet; making them here
keeps pydantic's model building out of the way until a call comes. What is not plain is left to
:mod:`~astrion_nb.tools.schema`, which gives the same schema for what is.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_TYPES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}


def describe(annotation: Any) -> tuple[Any, str | None]:
    """Split ``Annotated[T, "text"]`` into ``T`` (other metadata kept) and its text."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    base, *metadata = get_args(annotation)
    texts = [item for item in metadata if isinstance(item, str) and not item.startswith("astrion:")]
    rest = [item for item in metadata if not isinstance(item, str) or item.startswith("astrion:")]
    inner = Annotated[(base, *rest)] if rest else base
    return inner, texts[0] if texts else None


def plain_schema(function: Callable[..., Any], context_parameter: str | None) -> dict[str, Any] | None:
    """Return the schema of a function's parameters, or ``None`` when one of them is not plain.

    Parameters
    ----------
    function : callable
    context_parameter : str or None
        The parameter that is injected.
    """
    hints = get_type_hints(function, include_extras=True)
    out: dict[str, Any] = {"type": "object", "properties": {}}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == context_parameter:
            continue
        inner, text = describe(hints[parameter.name])
        schema = _of(inner)
        if schema is None:
            return None
        if text is not None:
            schema["description"] = text
        out["properties"][parameter.name] = schema
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    if required:
        out["required"] = required
    return out


def _of(annotation: Any) -> dict[str, Any] | None:
    origin = get_origin(annotation)
    if origin is Annotated:
        return {"type": "integer"} if get_args(annotation)[1:] == ("astrion:agent",) else None
    if origin in (Union, types.UnionType):
        left = [item for item in get_args(annotation) if item is not type(None)]
        return _of(left[0]) if len(left) == 1 and len(left) < len(get_args(annotation)) else None
    if origin is Literal:
        values = list(get_args(annotation))
        if len(values) < 2 or not all(type(value) is str for value in values):
            return None
        return {"type": "string", "enum": values}
    name = _TYPES.get(annotation) if isinstance(annotation, type) else None
    return None if name is None else {"type": name}
