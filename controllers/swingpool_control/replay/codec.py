"""Values of the core as plain JSON and back, by their types: nothing is lost, and no type needs code of its own.

A dataclass goes as an object with its class's name under `$`, so that unions and base classes read back as what they
were; an API model as it goes to the API server. JSON has no infinity and no NaN: these go as text under `float`.
Reading is strict: what does not fit its type is an error that names its path.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

T = TypeVar("T")

CLASS = "$"
FLOAT = "float"


class CodecError(ValueError):
    """A value cannot be written or read; the message names its place and what is wrong."""


def encode(value: object) -> Any:
    """Return a value of the core as what `json` can write.

    Raises:
        CodecError: it holds something that is no value of the core.
    """
    if value is None or isinstance(value, str | bool) or (isinstance(value, int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # What is made anew from the others is not written.
        fields = {item.name: encode(getattr(value, item.name)) for item in dataclasses.fields(value) if item.init}
        return {CLASS: type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {_key(key): encode(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((encode(item) for item in value), key=repr)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    raise CodecError(f"no way to write a {type(value).__name__}")


def decode(kind: type[T], raw: Any, *, path: str = "") -> T:
    """Return the value of a type that plain JSON stands for.

    Args:
        kind: the type.
        raw: what `encode` returned, perhaps after a way through a file.
        path: where it stands, for errors.

    Raises:
        CodecError: it does not fit the type.
    """
    found: T = _decode(kind, raw, path)
    return found


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise CodecError(f"a mapping's key must be text, not {key!r}")


def _decode(kind: Any, raw: Any, path: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return raw
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, raw, path)
    if origin is Literal:
        if raw in arguments:
            return raw
        raise CodecError(f"{path}: {raw!r} is none of {', '.join(map(str, arguments))}")
    if origin in (tuple, list, frozenset, set):
        return _decode_items(origin, arguments, raw, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _expect(raw, dict, path)
        return {key: _decode(arguments[1], item, f"{path}.{key}") for key, item in raw.items()}
    if isinstance(kind, type):
        return _decode_class(kind, raw, path)
    raise CodecError(f"{path}: no way to read a {kind}")


def _decode_union(kinds: tuple[Any, ...], raw: Any, path: str) -> Any:
    if raw is None and type(None) in kinds:
        return None
    tried = []
    for kind in kinds:
        if kind is type(None) or not _may_be(kind, raw):
            continue
        try:
            return _decode(kind, raw, path)
        except CodecError as error:
            tried.append(str(error))
    raise CodecError("; ".join(tried) or f"{path}: {raw!r} fits none of {', '.join(map(str, kinds))}")


def _may_be(kind: Any, raw: Any) -> bool:
    """Tell whether a written value may be of a type: a dataclass only if its name, or a subclass's, stands there."""
    tagged = isinstance(raw, dict) and CLASS in raw
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return tagged and raw[CLASS] in _subclasses(kind)
    return not tagged or not isinstance(kind, type) or raw[CLASS] in _subclasses(kind)


def _decode_items(origin: Any, arguments: tuple[Any, ...], raw: Any, path: str) -> Any:
    _expect(raw, list, path)
    fixed = origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis)
    if fixed and len(raw) != len(arguments):
        raise CodecError(f"{path}: {len(arguments)} items expected, not {len(raw)}")
    kinds = arguments if fixed else (arguments[0],) * len(raw)
    return origin(_decode(kind, item, f"{path}[{at}]") for at, (kind, item) in enumerate(zip(kinds, raw, strict=True)))


def _decode_class(kind: type, raw: Any, path: str) -> Any:
    if issubclass(kind, BaseModel):
        try:
            return kind.model_validate(raw)
        except ValidationError as error:
            raise CodecError(f"{path}: {error}") from error
    if issubclass(kind, Enum):
        try:
            return kind(raw)
        except ValueError as error:
            raise CodecError(f"{path}: {error}") from error
    if kind is float:
        return _float(raw, path)
    if kind in (str, bool, int):
        _expect(raw, kind, path)
        return raw
    return _decode_dataclass(kind, raw, path)


def _float(raw: Any, path: str) -> float:
    if isinstance(raw, dict) and set(raw) == {FLOAT}:
        return float(raw[FLOAT])
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise CodecError(f"{path}: a number is expected, not {raw!r}")
    return float(raw)


def _decode_dataclass(kind: type, raw: Any, path: str) -> Any:
    _expect(raw, dict, path)
    chosen = _subclasses(kind).get(str(raw.get(CLASS)))
    if chosen is None:
        raise CodecError(f"{path}: {raw.get(CLASS)!r} is no {kind.__name__} that is known here")
    hints = _hints(chosen)
    values = {}
    for item in dataclasses.fields(chosen):
        if item.init and item.name in raw:
            values[item.name] = _decode(hints[item.name], raw[item.name], f"{path}.{item.name}")
    try:
        return chosen(**values)
    except (TypeError, ValueError) as error:
        raise CodecError(f"{path}: {error}") from error


def _expect(raw: Any, kind: type, path: str) -> None:
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise CodecError(f"{path}: {kind.__name__} expected, not {type(raw).__name__}")


def _subclasses(kind: type) -> dict[str, type[Any]]:
    """A class and all that derive from it, by name, as far as they are dataclasses."""
    found: dict[str, type[Any]] = {kind.__name__: kind} if dataclasses.is_dataclass(kind) else {}
    derived: list[type[Any]] = kind.__subclasses__()
    for one in derived:
        found |= _subclasses(one)
    return found


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _KNOWN:
        _KNOWN[kind] = get_type_hints(kind)
    return _KNOWN[kind]


_KNOWN: dict[type, dict[str, Any]] = {}
"""Types of fields, by class: working them out takes longer than reading a value."""
