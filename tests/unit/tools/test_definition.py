import asyncio
import enum
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NoReturn

import jsonschema
import msgspec
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from holdfast.errors import NotFound, ToolError, ToolInputInvalid, UsageError
from holdfast.tools import (
    Parked,
    Reconciliation,
    Target,
    Tool,
    ToolContext,
    ToolResult,
    make_host_target,
    make_path_target,
    tool,
)

pytestmark = pytest.mark.filterwarnings("ignore:The tool .* has no docstring")


class Unit(enum.Enum):
    KM = "km"
    MILES = "mi"


class Stop(BaseModel):
    name: str
    minutes: int = 5


@tool(effect="read", tags=("travel",), version="2.1.0", examples=[{"start": "a", "stops": []}])
async def route(
    start: Annotated[str, Field(description="Where to begin", min_length=1)],
    stops: list[Stop],
    context: ToolContext,
    unit: Unit = Unit.KM,
    limit: int | None = None,
    mode: Literal["car", "bike"] = "car",
    weights: tuple[float, float] = (1.0, 2.0),
) -> dict[str, int]:
    """Plan a route.

    Args:
        stops: Where to stop.
        unit: Unit of length.
    """
    return {"stops": len(stops), "minutes": sum(stop.minutes for stop in stops)}


def test_schema_says_what_the_signature_and_the_docstring_say():
    schema = route.parameters
    assert route.description == "Plan a route."
    assert schema["required"] == ["start", "stops"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert list(properties) == ["start", "stops", "unit", "limit", "mode", "weights"]
    assert properties["start"] == {
        "type": "string",
        "description": "Where to begin",
        "minLength": 1,
    }
    assert properties["stops"]["description"] == "Where to stop."
    assert properties["unit"]["default"] == "km"
    assert properties["unit"]["description"] == "Unit of length."
    assert properties["limit"]["default"] is None
    assert properties["mode"]["enum"] == ["car", "bike"]
    assert schema["$defs"]["Unit"]["enum"] == ["km", "mi"]
    assert "title" not in str(schema)
    assert route.output_schema["type"] == "object"
    jsonschema.Draft202012Validator.check_schema(schema)


async def test_values_arrive_with_their_declared_types(context):
    values = route.validate(
        {"start": "a", "stops": [{"name": "b"}], "unit": "mi", "weights": [1, 2.5]}
    )
    assert values == {
        "start": "a",
        "stops": [Stop(name="b")],
        "unit": Unit.MILES,
        "weights": (1.0, 2.5),
    }
    result = await route.call(values, context)
    assert msgspec.json.decode(result.output) == {"stops": 1, "minutes": 5}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"start": "a"},
        {"start": 1, "stops": []},
        {"start": "", "stops": []},
        {"start": "a", "stops": [{"name": "b", "minutes": False}]},
        {"start": "a", "stops": [{"name": "b", "minutes": "5"}]},
        {"start": "a", "stops": [], "limit": True},
        {"start": "a", "stops": [], "limit": 1.5},
        {"start": "a", "stops": [], "unit": "KM"},
        {"start": "a", "stops": [], "mode": "boat"},
        {"start": "a", "stops": [], "extra": 1},
        {"start": "a", "stops": [], "context": {}},
        {"start": "a", "stops": "b"},
        {"start": "a", "stops": [], "weights": [1]},
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments):
    with pytest.raises(ToolInputInvalid) as caught:
        route.validate(arguments)
    assert caught.value.code == "tool.input_invalid"
    assert not jsonschema.Draft202012Validator(route.parameters).is_valid(arguments)


def test_every_fault_is_named_with_its_place():
    with pytest.raises(ToolInputInvalid) as caught:
        route.validate({"stops": [{"name": 1}], "nope": 2})
    detail = str(caught.value.context["detail"])
    for place in ("start", "stops.0.name", "nope"):
        assert place in detail


def test_arguments_that_are_no_json_are_refused():
    with pytest.raises(ToolInputInvalid):
        route.validate({"start": object(), "stops": []})
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolInputInvalid):
        route.validate({"start": "a", "stops": deep})


def test_a_context_with_none_as_its_default_is_passed_in():
    @tool
    def plain(a: int, context: ToolContext | None = None) -> int:
        return a

    @tool
    def annotated(a: int, context: Annotated[ToolContext, "passed in"]) -> int:
        return a

    for one in (plain, annotated):
        assert set(one.parameters["properties"]) == {"a"}
        assert one.signature.context_parameter == "context"


def test_types_that_have_a_name_of_their_own_count_as_what_they_stand_for():
    # What `type Here = ToolContext` makes, from Python 3.12 on.
    here = TypeAliasType("here", ToolContext)
    perhaps = TypeAliasType("perhaps", ToolContext | None)
    ends = TypeAliasType("ends", ToolResult | Parked)
    count = TypeAliasType("count", int)

    @tool
    def one(a: count, context: here) -> ends:
        return ToolResult("")

    @tool
    def other(a: count, context: perhaps = None) -> ends:
        return ToolResult("")

    for made in (one, other):
        assert set(made.parameters["properties"]) == {"a"}
        assert made.validate({"a": 1}) == {"a": 1}
        assert made.signature.context_parameter == "context"
        assert made.signature.output == {"type": "string"}


def test_types_defined_inside_a_function_are_found():
    class Inner(BaseModel):
        x: int

    @tool
    def inner(value: "Inner") -> str:
        return str(value.x)

    assert inner.validate({"value": {"x": 1}}) == {"value": Inner(x=1)}


def test_any_parameter_name_is_possible():
    @tool
    def odd(json: str, copy: int, schema: bool, model_config: str, _x: int) -> str:
        return json

    assert set(odd.parameters["properties"]) == {"json", "copy", "schema", "model_config", "_x"}
    assert odd.validate({"json": "", "copy": 1, "schema": True, "model_config": "", "_x": 1})


def no_type(a):
    return a


def star(*args: int) -> None: ...


def stars(**kwargs: int) -> None: ...


def by_position(a: int, /) -> None: ...


def field_default(a: int = Field(3)) -> None: ...


def unknown_type(a: "Nope") -> None: ...  # noqa: F821


def no_json(a: threading.Lock) -> None: ...  # type: ignore[valid-type]


def no_schema(a: Callable[[], int]) -> None: ...


def class_variable(a: ClassVar[int]) -> None: ...  # type: ignore[valid-type]


def alias(a: Annotated[int, Field(alias="b")] = 1) -> None: ...


def two_contexts(a: ToolContext, b: ToolContext) -> None: ...


def no_json_result() -> threading.Lock: ...  # type: ignore[valid-type, empty-body]


def yields() -> Iterator[int]:
    yield 1


async def yields_later():
    yield 1


class Counter:
    def __init__(self, start: int) -> None:
        self.start = start

    def no_object_yet(self, a: int) -> int:
        return self.start + a


@pytest.mark.parametrize(
    "function",
    [
        *[no_type, star, stars, by_position, field_default, unknown_type, no_json, no_schema],
        *[class_variable, alias, two_contexts, no_json_result, yields, yields_later],
        *[Counter, Counter.no_object_yet],
    ],
)
def test_function_that_a_model_cannot_call_is_refused(function):
    with pytest.raises(UsageError) as caught:
        tool(function)
    assert function.__name__ in str(caught.value)


def test_the_parameter_whose_type_has_no_json_form_is_named():
    with pytest.raises(UsageError, match="for 'lock'"):

        @tool
        def two(a: int, lock: threading.Lock) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "no function"),
        ("name", "options go by name"),
        (route, "a tool already"),
        (functools.partial(no_type, a=1), "functools.partial"),
        (classmethod(lambda cls: None), "TheClass.method"),
    ],
)
def test_what_is_no_function_is_refused_with_what_to_write(given, told):
    with pytest.raises(UsageError, match=told):
        tool(given)


async def _reconcile(intent, context):
    return Reconciliation(verdict="unknown")


@pytest.mark.parametrize(
    "options",
    [
        {"labels": ["secret"]},
        {"labels": "private"},
        {"name": "with space"},
        {"name": "x" * 65},
        {"version": "one"},
        {"effect": "reconcile"},
        {"effect": "read", "reconcile": _reconcile},
        {"cacheable": True},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": "1"},
        {"timeout_s": True},
        {"version": 1},
        {"deprecated": True},
        {"effect": "Read"},
        {"permission": "Ask"},
        {"tags": "maths"},
        {"examples": 5},
        {"effect": "reconcile", "reconcile": lambda intent, context: None},
        {"no_such_option": 1},
        {"examples": [{"a": "no number"}]},
        {"target": "nope"},
    ],
)
def test_option_that_cannot_work_is_refused(options):
    with pytest.raises(UsageError):

        @tool(**options)
        def fine(a: int) -> int:
            return a


async def test_plain_function_runs_in_a_thread_and_keeps_the_loop_free(call):
    started, may_end = threading.Event(), threading.Event()

    @tool
    def blocking(context: ToolContext) -> str:
        started.set()
        assert may_end.wait(10)
        return f"{threading.current_thread() is threading.main_thread()} {context.session_id}"

    waiting = asyncio.create_task(call(blocking))
    await asyncio.to_thread(started.wait, 10)
    may_end.set()
    assert (await asyncio.wait_for(waiting, 10)).output == "False ses_1"


async def test_parameters_named_as_those_of_the_machinery_reach_the_function(call):
    @tool
    def named(self: int, function: str, args: int, kwargs: int) -> str:
        return f"{self} {function} {args} {kwargs}"

    called = await call(named, self=1, function="f", args=2, kwargs=3)
    assert called.output == "1 f 2 3"


async def test_an_async_function_behind_a_plain_decorator_is_awaited(call):
    def logged(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @tool
    @logged
    async def double(a: int) -> int:
        await asyncio.sleep(0)
        return 2 * a

    assert (await call(double, a=2)).output == "4"


async def test_async_function_runs_on_the_loop(call):
    @tool
    async def here() -> str:
        return str(threading.current_thread() is threading.main_thread())

    assert (await call(here)).output == "True"


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


class Box(msgspec.Struct):
    side: int


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("text", "text"),
        (None, ""),
        (3, "3"),
        (True, "true"),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
        (Stop(name="b"), '{"name":"b","minutes":5}'),
        (Point(1), '{"x":1}'),
        (Box(2), '{"side":2}'),
        ([Box(2)], '[{"side":2}]'),
        (Color.RED, '"red"'),
        (b"\xff", '"_w=="'),
    ],
)
async def test_any_value_with_a_json_form_becomes_text(call, value, output):
    @tool
    async def give():
        return value

    assert (await call(give)).output == output


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Box, {"type": "object", "properties": {"side": {"type": "integer"}}}),
        (list[Box], {"type": "array"}),
        (ToolResult, {"type": "string"}),
        (ToolResult | Parked, {"type": "string"}),
        (ToolResult | str, {"type": "string"}),
        (ToolResult | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (NoReturn, {}),
    ],
)
def test_the_output_schema_says_what_the_result_is(hint, schema):
    def give(): ...

    give.__annotations__["return"] = hint
    said = tool(give).output_schema
    if "$ref" in said:
        said = said["$defs"]["Box"]
    assert {key: said.get(key) for key in schema} == schema


async def test_value_without_a_json_form_is_an_error(call):
    @tool
    async def give():
        return threading.Lock()

    with pytest.raises(ToolError):
        await call(give)


async def test_results_pass_unchanged(call):
    result = ToolResult("out", title="t", metadata={"a": 1}, is_error=True)
    parked = Parked(reason="question", request={})

    @tool
    async def finished() -> ToolResult:
        return result

    @tool
    async def waits() -> ToolResult | Parked:
        return parked

    assert await call(finished) is result
    assert await call(waits) is parked
    assert waits.output_schema == {"type": "string"}


def test_tool_is_still_the_function_for_its_author():
    @tool
    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    assert double(4) == 8
    assert double.spec.description == "Double it."


async def test_object_with_call_and_bound_method_are_tools(call):
    class CalculatorTool:
        """Calculates."""

        def __init__(self) -> None:
            self.calls = 0

        async def __call__(self, a: int, b: int) -> int:
            """Add."""
            self.calls += 1
            return a + b

        def subtract(self, a: int, b: int) -> int:
            return a - b

    calculator = CalculatorTool()
    add = Tool.from_function(calculator)
    assert add.name == "calculator"
    assert (await call(add, a=1, b=2)).output == "3"
    assert calculator.calls == 1
    assert (await call(Tool.from_function(calculator.subtract), a=1, b=2)).output == "-1"


def test_deprecation_is_told_to_the_model():
    @tool(deprecated="Use new_one.")
    def old() -> None:
        """Old."""

    assert old.spec.description == "Old.\n\nDeprecated: Use new_one."


def test_targets_name_what_a_call_touches(context, root):
    (root / "real").write_text("")
    (root / "link").symlink_to("real")

    def touch(path: str = "link", url: str = "") -> None: ...

    def targets(target, **arguments):
        return Tool.from_function(touch, target=target).targets(arguments, context.workspace)

    assert targets(make_path_target("path"), path="x/../link") == ("real",)
    assert targets(make_path_target("path"), path="/etc/passwd") == ("/etc/passwd",)
    far = make_host_target("url")
    assert targets(far, url="https://user@Example.com:1/x") == ("example.com:1",)
    assert targets(far, url="https://user@Example.com:443/x") == ("example.com",)
    assert targets(far, url="http://[broken") == ("",)
    assert targets("url", url="abc") == ("abc",)
    assert Tool.from_function(touch).targets({}, context.workspace) == ("*",)
    many = Target(kind="text", resolve=lambda arguments, _: ["a", "b"])
    assert targets(many) == ("a", "b")


def test_provenance_changes_with_the_code():
    @tool(name="same")
    def one(a: int) -> int:
        return a

    @tool(name="same")
    def two(a: int) -> int:
        return a + 1

    assert one.source_hash != two.source_hash
    assert one.source_hash == Tool.from_function(one.function, name="same").source_hash
    built = eval("lambda: 1")
    assert len(Tool.from_function(built, name="made").source_hash) == 64


def test_a_default_without_json_form_stays_the_functions_own_business():
    nothing = object()

    @tool
    def look(
        text: str = "", where: Annotated[str, Field()] = nothing, mark: bytes = b"\xff"
    ) -> str:
        """Look."""
        return text

    properties = look.parameters["properties"]
    assert properties["text"]["default"] == ""
    assert "default" not in properties["where"]
    assert "default" not in properties["mark"]


async def test_what_tools_have_without_better_services_lives_in_memory(context):
    handle = await context.artifacts.save("a", b"data", media_type="text/plain")
    assert await context.artifacts.load(handle) == b"data"
    with pytest.raises(NotFound):
        await context.artifacts.load("other")
    context.cancellation.raise_if_cancelled()
    context.cancellation.cancel()
    with pytest.raises(asyncio.CancelledError):
        context.cancellation.raise_if_cancelled()


@pytest.mark.filterwarnings("error")
def test_a_tool_without_a_docstring_warns_where_it_is_defined():
    def bare(number: int) -> int:
        return number

    with pytest.warns(UserWarning, match="'bare' has no docstring") as warned:
        tool(bare)
    assert warned[0].filename == __file__
    assert tool(description="Return it.")(bare).description == "Return it."
