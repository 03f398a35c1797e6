"""Errors say what happened, what to do, and survive a journal."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.cli.commands import COMMANDS
from holdfast.errors import HoldfastError, TellModel, list_errors, make_error_from_dict

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, HoldfastError)
]
by_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def build(cls: type[HoldfastError]) -> HoldfastError:
    return cls(**{name: f"<{name}>" for name in cls.fields()})


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert sorted(codes) == sorted(set(codes))


@by_class
def test_a_code_is_dotted_lower_case(cls: type[HoldfastError]) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z_]+)?", cls.code)


@by_class
def test_an_error_shows_all_its_fields(cls: type[HoldfastError]) -> None:
    error = build(cls)
    shown = f"{error} {error.hint}"
    assert [name for name in cls.fields() if f"<{name}>" not in shown] == []
    assert "{" not in shown


@by_class
def test_an_error_can_be_built_without_fields(cls: type[HoldfastError]) -> None:
    error = cls()
    assert str(error)
    assert error.context == {}


@by_class
def test_an_error_survives_the_journal(cls: type[HoldfastError]) -> None:
    error = build(cls)
    again = make_error_from_dict(json.loads(json.dumps(error.to_dict())))
    assert type(again) is cls
    assert again.to_dict() == error.to_dict()


@by_class
def test_an_error_survives_pickling(cls: type[HoldfastError]) -> None:
    error = build(cls)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.to_dict()) == (cls, error.to_dict())


@by_class
def test_an_error_stands_in_the_drawn_tree_below_its_parent(cls: type[HoldfastError]) -> None:
    drawn = re.findall(r"^( +)([A-Z]\w+)\b", errors.__doc__ or "", re.MULTILINE)
    depth = {name: len(spaces) for spaces, name in drawn}
    names = [name for _, name in drawn]
    assert cls.__name__ in depth
    if cls is not HoldfastError:
        above = names[: names.index(cls.__name__)]
        parent = next(name for name in reversed(above) if depth[name] < depth[cls.__name__])
        assert parent == cls.__base__.__name__


@by_class
def test_a_final_error_says_what_to_do_next(cls: type[HoldfastError]) -> None:
    if cls.next_step:
        assert cls.next_step[0].isupper() or cls.next_step[0] in "`{"


def test_foreign_values_in_the_context_become_plain() -> None:
    error = errors.StorageError(path={"a": (1, {2})}, detail=ValueError("x"), more=None)
    context = error.to_dict()["context"]
    assert context == {"path": {"a": [1, [2]]}, "detail": "x", "more": None}


def test_an_unknown_code_becomes_a_plain_error_with_its_message() -> None:
    error = make_error_from_dict({"code": "from.the.future", "message": "it broke"})
    assert type(error) is HoldfastError
    assert str(error) == "it broke"


@pytest.mark.parametrize("data", [{}, {"code": None}, {"code": "llm.timeout", "context": "x"}])
def test_a_damaged_record_of_an_error_is_still_an_error(data: dict[str, object]) -> None:
    assert str(make_error_from_dict(data))


def test_braces_in_a_field_are_shown_as_they_are() -> None:
    assert "{x!r}" in str(errors.ToolError(tool="t", detail="{x!r}"))


def test_application_errors_are_found_by_their_code() -> None:
    class OutOfStock(errors.ToolError):
        code = "shop.out_of_stock"
        message = "{item} is sold out."

    assert list_errors()["shop.out_of_stock"] is OutOfStock
    again = make_error_from_dict(OutOfStock(item="tea").to_dict())
    assert (type(again), str(again)) == (OutOfStock, "tea is sold out.")


def test_a_retryable_error_says_so_in_its_record() -> None:
    record = errors.LLMTimeout(provider="p", phase="connect", limit_s=5).to_dict()
    assert record["is_retryable"] is True


def test_tell_model_keeps_its_text_and_whether_to_retry() -> None:
    told = TellModel("use a smaller number", retry=False)
    assert (str(told), told.text, told.retry) == (told.text, "use a smaller number", False)
    assert not isinstance(told, HoldfastError)


plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()


@given(st.dictionaries(st.sampled_from(["provider", "detail", "status", "url"]), plain))
def test_any_plain_context_round_trips(context: dict[str, object]) -> None:
    error = errors.LLMBadRequest(**context)
    again = make_error_from_dict(json.loads(json.dumps(error.to_dict())))
    assert again.context == context
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", [*sorted(errors.NotFound._LISTS), "agent file", "message"])
def test_what_is_missing_is_looked_up_with_a_command_that_exists(kind: str) -> None:
    hint = errors.NotFound(kind=kind, value="x").hint
    named = re.findall(r"`holdfast (.+) list`", hint)
    for group in named:
        module, _ = COMMANDS[group]
        assert "list" in importlib.import_module(module).command.commands
    assert bool(named) == (kind in errors.NotFound._LISTS)
