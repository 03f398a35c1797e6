"""KEY=VALUE at the command line, read as a JSON Schema wants each value to be."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError

_ANY: Final = frozenset({"any"})
_MOST_REFERENCES: Final = 20


def read_pairs(pairs: Sequence[str], schema: JsonObject) -> JsonObject:
    """Return the values that pairs give to the properties of a schema.

    Where a text fits, the value is that text, as it stands; everything else is JSON. A list
    is JSON too, or its items one by one: `ignore=a ignore=b`. Whether the values are good
    ones is for the schema's own validation to say.

    Raises:
        UsageError: a pair is none, names no property, or cannot be read.
    """
    given: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise UsageError(detail=f"Arguments are KEY=VALUE, not {pair!r}.")
        given.setdefault(name, []).append(text)
    return {
        name: _read_value(name, texts, _find_property(name, schema), schema)
        for name, texts in given.items()
    }


def _find_property(name: str, schema: JsonObject) -> JsonObject:
    known = schema.get("properties", {})
    if name in known:
        found: JsonObject = known[name]
        return found
    # A schema that names nothing and forbids nothing takes whatever is given.
    if schema.get("additionalProperties", not known):
        return {}
    near = difflib.get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    there = f"there are {', '.join(known)}." if known else "it takes none."
    raise UsageError(detail=f"There is no argument {name!r}; {there}{meant}")


def _read_value(name: str, texts: list[str], wanted: JsonObject, schema: JsonObject) -> object:
    kinds = _list_kinds(wanted, schema)
    is_one_item = "string" not in kinds and not texts[0].lstrip().startswith("[")
    if "array" in kinds and (len(texts) > 1 or is_one_item):
        items = _list_items(wanted, schema)
        return [_read_value(name, [text], items, schema) for text in texts]
    if len(texts) > 1:
        raise UsageError(detail=f"The argument {name} takes one value and was given {len(texts)}.")
    if "string" in kinds:
        return texts[0]
    try:
        return msgspec.json.decode(texts[0])
    except msgspec.DecodeError as error:
        if kinds == _ANY:
            return texts[0]
        shown = " or ".join(sorted(kinds))
        detail = f"The argument {name} takes JSON of the type {shown}, not {texts[0]!r}: {error}"
        raise UsageError(detail=detail) from error


def _list_kinds(wanted: JsonObject, schema: JsonObject) -> frozenset[str]:
    """Return the JSON types that fit a property; `any` where it does not say."""
    wanted = _follow_reference(wanted, schema)
    said = wanted.get("type")
    if said is not None:
        return frozenset([said] if isinstance(said, str) else said)
    if "enum" in wanted or "const" in wanted:
        values = wanted.get("enum", [wanted.get("const")])
        return frozenset({_name_kind(value) for value in values})
    return (
        frozenset[str]().union(*[_list_kinds(one, schema) for one in _list_choices(wanted)]) or _ANY
    )


def _list_items(wanted: JsonObject, schema: JsonObject) -> JsonObject:
    """Return what the items of a list have to be."""
    wanted = _follow_reference(wanted, schema)
    lists = [one for one in _list_choices(wanted) if "array" in _list_kinds(one, schema)]
    if lists:
        return _list_items(lists[0], schema)
    items = wanted.get("items", {})
    return items if isinstance(items, dict) else {}


def _list_choices(wanted: JsonObject) -> Sequence[JsonObject]:
    return wanted.get("anyOf") or wanted.get("oneOf") or wanted.get("allOf") or ()


def _follow_reference(wanted: JsonObject, schema: JsonObject) -> JsonObject:
    """Return what a property refers to, within the same document."""
    for _ in range(_MOST_REFERENCES):
        place = wanted.get("$ref")
        if not isinstance(place, str) or not place.startswith("#/"):
            return wanted
        found: Any = schema
        for step in place.removeprefix("#/").split("/"):
            found = found.get(step, {}) if isinstance(found, dict) else {}
        wanted = found
    return {}


def _name_kind(value: object) -> str:
    return "string" if isinstance(value, str) else "any"
