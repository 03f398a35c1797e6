"""What every framework is asked to do with the same small model; only the standard library.

Tools are plain functions: each framework makes its own schemas of them. What was called is in
`CALLED`, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

LIMIT_S = 60
LOOP_LIMIT_S = 120
MAX_TOKENS = 100
CALLED: list[tuple[str, dict[str, Any]]] = []


def _note(name: str, given: dict[str, Any]) -> None:
    CALLED.append((name, dict(given)))


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    _note("multiply", locals())
    return a * b


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    _note("add", locals())
    return a + b


def get_weather(city: str) -> str:
    """Say what the weather is in a city."""
    _note("get_weather", locals())
    return f"sunny in {city}"


def get_time(city: str) -> str:
    """Say what time it is in a city."""
    _note("get_time", locals())
    return "12:30"


def save_note(text: str) -> str:
    """Keep a note for later."""
    _note("save_note", locals())
    return "saved"


def set_timer(minutes: int) -> str:
    """Set a timer that rings after so many minutes."""
    _note("set_timer", locals())
    return "set"


def find_order(customer: str) -> str:
    """Return the number of a customer's order."""
    _note("find_order", locals())
    return "4711"


def refund(order: int) -> str:
    """Give the money of an order back."""
    _note("refund", locals())
    return "refunded"


def find_user(name: str) -> str:
    """Return the email address of a user."""
    _note("find_user", locals())
    return "anna@example.com"


def send_email(address: str, text: str) -> str:
    """Send an email to an address."""
    _note("send_email", locals())
    return "sent"


class SingleCall(NamedTuple):
    """One request, the tools on offer, and the one right call."""

    text: str
    tools: tuple[Callable[..., Any], ...]
    tool: str
    arguments: dict[str, Any]


class TwoSteps(NamedTuple):
    """A request that needs the result of one call for the next."""

    text: str
    tools: tuple[Callable[..., Any], ...]
    calls: tuple[tuple[str, dict[str, Any]], ...]


class Structured(NamedTuple):
    """A text, and the fields that are to be read from it, with their types."""

    text: str
    name: str
    fields: dict[str, type]


_NUMBERS, _CITY, _DESK = (add, multiply), (get_time, get_weather), (save_note, set_timer)

SINGLE_CALLS = (
    SingleCall("What is 15 times 23?", (multiply,), "multiply", {"a": 15, "b": 23}),
    SingleCall("What is 7 times 8?", (multiply,), "multiply", {"a": 7, "b": 8}),
    SingleCall("Multiply 12 by 4.", _NUMBERS, "multiply", {"a": 12, "b": 4}),
    SingleCall("Add 40 and 2.", _NUMBERS, "add", {"a": 40, "b": 2}),
    SingleCall("What is 100 plus 11?", (add,), "add", {"a": 100, "b": 11}),
    SingleCall("What is the sum of 3 and 9?", _NUMBERS, "add", {"a": 3, "b": 9}),
    SingleCall("What is the weather in Paris?", (get_weather,), "get_weather", {"city": "Paris"}),
    SingleCall("How is the weather in Rome?", _CITY, "get_weather", {"city": "Rome"}),
    SingleCall("What time is it in Tokyo?", _CITY, "get_time", {"city": "Tokyo"}),
    SingleCall("Tell me the time in Berlin.", (get_time,), "get_time", {"city": "Berlin"}),
    SingleCall("Weather in Oslo, please.", _CITY, "get_weather", {"city": "Oslo"}),
    SingleCall("Save a note: buy milk", _DESK, "save_note", {"text": "buy milk"}),
    SingleCall("Save the note: call mom", (save_note,), "save_note", {"text": "call mom"}),
    SingleCall("Set a timer for 5 minutes.", _DESK, "set_timer", {"minutes": 5}),
    SingleCall("Set a timer for 30 minutes.", (set_timer,), "set_timer", {"minutes": 30}),
    SingleCall("Wake me in 10 minutes.", (set_timer,), "set_timer", {"minutes": 10}),
    SingleCall("Find the order of Anna.", (find_order,), "find_order", {"customer": "Anna"}),
    SingleCall("Refund order 4711.", (find_order, refund), "refund", {"order": 4711}),
    SingleCall("Find the user Bob.", (find_user,), "find_user", {"name": "Bob"}),
    SingleCall(
        "Find the order of the customer Carl.", (find_order, refund), "find_order",
        {"customer": "Carl"},
    ),
)  # fmt: skip

TWO_STEPS = (
    TwoSteps(
        "Find the order of Anna, then refund it.",
        (find_order, refund),
        (("find_order", {"customer": "Anna"}), ("refund", {"order": 4711})),
    ),
    TwoSteps(
        "Give Bob the money of his order back.",
        (find_order, refund),
        (("find_order", {"customer": "Bob"}), ("refund", {"order": 4711})),
    ),
    TwoSteps(
        "Multiply 6 by 7, then add 1 to the result.",
        _NUMBERS,
        (("multiply", {"a": 6, "b": 7}), ("add", {"a": 42, "b": 1})),
    ),
    TwoSteps(
        "Look up the weather in Paris and save it as a note: sunny in Paris",
        (get_weather, save_note),
        (("get_weather", {"city": "Paris"}), ("save_note", {"text": "sunny in Paris"})),
    ),
    TwoSteps(
        "Find the user Anna and send her an email with the text: hello",
        (find_user, send_email),
        (
            ("find_user", {"name": "Anna"}),
            ("send_email", {"address": "anna@example.com", "text": "hello"}),
        ),
    ),
)

STRUCTURED = (
    Structured("Paris is the capital of France.", "City", {"name": str, "country": str}),
    Structured("Anna is 31 years old.", "Person", {"name": str, "age": int}),
    Structured("The meeting is on Monday at 9.", "Meeting", {"day": str, "hour": int}),
    Structured("The printer is broken. This is urgent!", "Ticket", {"title": str, "urgent": bool}),
    Structured("Two apples cost 3 dollars.", "Price", {"item": str, "dollars": float}),
)

LOOPS = (
    "Write the word hello into the file hello.txt.",
    "Create the file numbers.txt with the numbers 1 to 3, one per line.",
    "Describe in the file summary.txt what is in this folder.",
)


def fold(value: object) -> object:
    """Return a value without what does not matter: capitals, a full stop, 5.0 for 5."""
    if isinstance(value, str):
        return value.strip().rstrip(".!").casefold()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_same_call(found: tuple[str, dict[str, Any]], tool: str, arguments: dict[str, Any]) -> bool:
    """Say whether a call is the one that was meant."""
    given = {key: fold(value) for key, value in found[1].items()}
    return found[0] == tool and given == {key: fold(value) for key, value in arguments.items()}


def score_single(task: SingleCall) -> bool:
    """Say whether the first call was right."""
    return bool(CALLED) and is_same_call(CALLED[0], task.tool, task.arguments)


def score_two(task: TwoSteps) -> bool:
    """Say whether both calls came, in their order, whatever came between."""
    left = list(task.calls)
    for call in CALLED:
        if left and is_same_call(call, *left[0]):
            left.pop(0)
    return not left


ROWS = ("single", "two", "structured", "loops")
_TASKS: dict[str, tuple[Any, ...]] = {
    "single": SINGLE_CALLS,
    "two": TWO_STEPS,
    "structured": STRUCTURED,
    "loops": LOOPS,
}


def names(rows: tuple[str, ...]) -> list[str]:
    """Return the names of all tasks of some rows: `single-1`, ..."""
    return [f"{row}-{number}" for row in rows for number in range(1, len(_TASKS[row]) + 1)]


def row_of(name: str) -> str:
    """Return the row that a task counts in."""
    return name.partition("-")[0]


def find(name: str) -> tuple[str, Any]:
    """Return a task with its row."""
    row, _, number = name.partition("-")
    return row, _TASKS[row][int(number) - 1]


def is_right(row: str, task: Any, output: object, kind: type | None) -> bool:
    """Say whether a task came right: the calls that were made, or the type of the answer."""
    if row == "single":
        return score_single(task)
    if row == "two":
        return score_two(task)
    return kind is not None and isinstance(output, kind)


def tell_calls(output: object) -> str:
    """Say in one line what was called, or what was answered instead."""
    called = "; ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
        for name, given in CALLED
    )
    return (called or f"answered {output!r}")[:160].replace("\n", " ")
