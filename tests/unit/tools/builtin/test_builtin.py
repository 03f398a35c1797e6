"""What holds for all built-in tools."""

import jsonschema
import pytest
from openapi_spec_validator import validate

from holdfast.errors import TellModel, ToolInputInvalid
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.builtin.calculator import calculator

REGISTRY = builtin_tools()
EFFECTS = {
    "read": {
        "ast_grep_search", "batch", "calculator", "codesearch", "glob", "grep", "list", "lsp",
        "read", "todoread", "webfetch", "websearch",
    },
    "idempotent": {"externaldirectory", "question", "todowrite", "write"},
    "reconcile": {"edit", "multiedit"},
    "unsafe": {"bash"},
}  # fmt: skip


def test_all_that_work_are_registered_and_their_effects_are_what_we_say():
    found = {effect: set() for effect in EFFECTS}
    for tool in REGISTRY:
        found[tool.effect].add(tool.name)
    assert found == EFFECTS


@pytest.mark.parametrize("tool", REGISTRY, ids=lambda tool: tool.name)
def test_definition_is_complete(tool):
    assert tool.is_async
    assert tool.description.count("\n") >= 0
    assert tool.description[0].isupper()
    assert tool.tags
    assert tool.timeout_s > 0
    assert len(tool.source_hash) == 64
    jsonschema.Draft202012Validator.check_schema(tool.parameters)
    assert tool.parameters["additionalProperties"] is False
    assert "context" not in tool.parameters["properties"]


@pytest.mark.parametrize("tool", REGISTRY, ids=lambda tool: tool.name)
def test_unknown_and_wrongly_typed_arguments_are_refused(tool):
    with pytest.raises(ToolInputInvalid):
        tool.validate({"no_such_argument": 1})
    for name in tool.parameters["properties"]:
        with pytest.raises(ToolInputInvalid):
            tool.validate({name: {"wrong": ["type"]}})


def test_exports_are_valid():
    validate(REGISTRY.openapi())
    jsonschema.Draft202012Validator.check_schema(REGISTRY.json_schema())


@pytest.mark.parametrize(
    ("operation", "value"), [("add", "8"), ("subtract", "4"), ("multiply", "12"), ("divide", "3")]
)
async def test_the_calculator_calculates_and_divides_nothing_by_zero(call, operation, value):
    assert (await call(calculator, operation=operation, a=6, b=2)).output == value
    with pytest.raises(TellModel):
        await call(calculator, operation="divide", a=6, b=0)
