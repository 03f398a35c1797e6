import importlib.metadata
from typing import Annotated, Literal

import jsonschema
import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel, Field

from holdfast.errors import AlreadyExists, NotFound, UsageError
from holdfast.tools import Tool, ToolRegistry, tool


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def make(name="echo", version="1.0.0"):
    def echo(text: str) -> str:
        """Echo."""
        return text

    return Tool.from_function(echo, name=name, version=version)


@tool
def tree(root: Node, depth: int = 3) -> Node:
    """Walk a tree."""
    return root


def test_tools_are_public_sorted_and_read_only():
    registry = ToolRegistry([make("b"), make("a")])
    assert list(registry.tools) == ["a", "b"]
    with pytest.raises(TypeError):
        registry.tools["c"] = make("c")
    assert [one.name for one in registry] == ["a", "b"]
    assert "a" in registry
    assert len(registry) == 2


def test_registries_share_nothing():
    one, two = ToolRegistry(), ToolRegistry()
    one.register(make())
    assert len(two) == 0


def test_latest_version_is_the_default_and_others_stay_reachable():
    registry = ToolRegistry(
        [
            make(version="1.9.0"),
            make(version="1.10.0"),
            make(version="2.0.0-beta"),
            make(version="1.2"),
        ]
    )
    assert registry.get("echo").version == "2.0.0-beta"
    assert registry.get("echo@1.9.0").version == "1.9.0"
    registry.register(make(version="2.0.0"))
    assert registry.get("echo").version == "2.0.0"
    assert registry.versions("echo") == ("1.2", "1.9.0", "1.10.0", "2.0.0-beta", "2.0.0")
    with pytest.raises(NotFound):
        registry.get("echo@9.0.0")


@pytest.mark.parametrize("name", ["echo", "ECHO", "e_cho", "e-cho"])
def test_taken_name_is_refused_in_the_same_layer_and_above(name):
    builtin = ToolRegistry([make()], scope="built-in")
    session = builtin.child(scope="project").child()
    for registry in (builtin, session):
        with pytest.raises(AlreadyExists) as caught:
            registry.register(make(name))
        assert caught.value.code == "usage.already_exists"
    with pytest.raises(AlreadyExists):
        session.register(make(name, version="9.0.0"))


def test_replacing_on_purpose_hides_the_layer_below_only_here():
    builtin = ToolRegistry([make()], scope="built-in")
    session = builtin.child()
    mine = session.register(make(version="0.1"), replace=True)
    assert session.get("echo") is mine
    assert builtin.get("echo").version == "1.0.0"
    assert session.find_scope("echo") == "session"
    session.unregister("echo")
    assert session.find_scope("echo") == "built-in"
    assert session.find_scope("nope") == ""


def test_what_was_replaced_is_out_of_reach_by_its_version_too():
    builtin = ToolRegistry([make()], scope="built-in")
    session = builtin.child()
    session.register(make(version="2.0.0"), replace=True)
    assert session.find("echo@1.0.0") is None
    mine = session.register(make(version="0.1"), replace=True)
    assert session.get("echo") is mine
    assert session.versions("echo") == ("0.1",)


def test_layer_is_the_same_until_something_below_changes():
    own = make("own")
    registry = ToolRegistry([make("a")])
    layer = registry.layer((own,), scope="agent")
    assert registry.layer((own,), scope="agent") is layer
    assert registry.layer((own,), scope="other") is not layer
    assert (list(layer.tools), layer.find_scope("own")) == (["a", "own"], "agent")
    registry.register(make("b"))
    assert list(registry.layer((own,), scope="agent").tools) == ["a", "b", "own"]
    registry.register(make("o_wn"))
    with pytest.raises(AlreadyExists):
        registry.layer((own,), scope="agent")


def test_names_are_found_with_and_without_underscores():
    registry = ToolRegistry([make("todo_read")])
    assert registry.get("todoread").name == "todo_read"
    assert registry.get("TodoRead@1.0.0").name == "todo_read"


def test_specs_are_built_once_and_again_after_a_change_in_any_layer():
    parent = ToolRegistry([make("a")])
    child = parent.child([make("b")])
    specs = child.specs()
    assert child.specs() is specs
    assert [spec.name for spec in specs] == ["a", "b"]
    parent.register(make("c"))
    assert [spec.name for spec in child.specs()] == ["a", "b", "c"]
    child.unregister("b")
    assert [spec.name for spec in child.specs()] == ["a", "c"]


def test_one_version_can_be_removed():
    registry = ToolRegistry([make(version="1.0"), make(version="2.0")])
    registry.unregister("echo@2.0")
    assert registry.get("echo").version == "1.0"
    for name in ("echo@3.0", "nope"):
        with pytest.raises(NotFound):
            registry.unregister(name)


def test_plain_function_is_no_tool():
    with pytest.raises(UsageError):
        ToolRegistry([print])


TOOLS = [make("from_list")]
ONE = make("alone")
NOT_A_TOOL = 3
NOT_TOOLS = [3]


def install(tmp_path, monkeypatch, *values):
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    lines = [f"n{index} = {__name__}:{value}" for index, value in enumerate(values)]
    (info / "entry_points.txt").write_text("[holdfast.tools]\n" + "\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


def test_entry_points_are_loaded_only_when_asked(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "ONE", "TOOLS")
    registry = ToolRegistry()
    assert len(registry) == 0
    assert registry.load_entry_points() == (ONE, *TOOLS)
    assert list(registry.tools) == ["alone", "from_list"]


@pytest.mark.parametrize("value", ["NOT_A_TOOL", "NOT_TOOLS", "MISSING"])
def test_entry_point_that_is_no_tool_is_refused(tmp_path, monkeypatch, value):
    install(tmp_path, monkeypatch, value)
    with pytest.raises(UsageError, match=f"{__name__}:{value}"):
        ToolRegistry().load_entry_points()


def test_json_schema_export_holds_for_nested_and_recursive_types():
    document = ToolRegistry([tree, make()]).json_schema()
    jsonschema.Draft202012Validator.check_schema(document)
    schema = {**document, "$ref": "#/$defs/tree"}
    checker = jsonschema.Draft202012Validator(schema)
    assert checker.is_valid({"root": {"name": "a", "children": [{"name": "b"}]}})
    assert not checker.is_valid({"root": {"name": "a", "children": [{"nome": "b"}]}})


def test_openapi_export_is_a_valid_document():
    document = ToolRegistry([tree, make()]).openapi()
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {"/tools/echo", "/tools/tree"}


def test_exported_discriminators_point_into_the_document():
    @tool
    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> str:
        """Feed a pet."""
        return pet.kind

    registry = ToolRegistry([feed])
    schema = registry.json_schema()["$defs"]["feed"]["properties"]["pet"]
    assert schema["discriminator"]["mapping"]["cat"] == "#/$defs/feed/$defs/Cat"
    components = registry.openapi()["components"]["schemas"]
    pet = components["feed.arguments"]["properties"]["pet"]
    assert pet["discriminator"]["mapping"]["dog"] == "#/components/schemas/feed.arguments.Dog"
    assert "feed.arguments.Dog" in components


def test_a_name_that_differs_by_a_hyphen_only_is_the_same_name():
    async def work() -> str:
        """Work."""
        return ""

    registry = ToolRegistry([Tool.from_function(work, name="do_it", version="1.0.0")])
    with pytest.raises(AlreadyExists):
        registry.register(Tool.from_function(work, name="do-it", version="2.0.0"))
    below = registry.child()
    assert below.versions("doit") == ("1.0.0",)
    assert below.versions("nothing") == ()
