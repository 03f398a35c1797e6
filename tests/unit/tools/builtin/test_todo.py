import pytest

from holdfast.errors import ToolInputInvalid
from holdfast.tools.builtin.todo import todoread, todowrite


async def test_list_is_kept_for_the_session(call):
    assert (await call(todoread)).output == "(nothing to do)"
    todos = [
        {"content": "a", "status": "completed"},
        {"content": "b", "status": "in_progress", "priority": "high"},
        {"content": "c"},
        {"content": "d", "status": "cancelled", "id": "mine"},
    ]
    written = await call(todowrite, todos=todos)
    read = await call(todoread)
    assert read.output == "[x] a\n[>] b\n[ ] c\n[-] d"
    assert read.metadata == written.metadata
    assert read.metadata["open"] == 2
    assert [one["id"] for one in read.metadata["todos"]] == ["1", "2", "3", "mine"]


async def test_writing_replaces_the_whole_list(call):
    await call(todowrite, todos=[{"content": "a"}])
    await call(todowrite, todos=[])
    assert (await call(todoread)).metadata["todos"] == []


@pytest.mark.parametrize(
    "todos",
    [
        "x",
        [{}],
        [{"content": ""}],
        [{"content": "a", "status": "done"}],
        [{"content": "a", "x": 1}],
    ],
)
def test_wrong_arguments_are_refused(todos):
    with pytest.raises(ToolInputInvalid):
        todowrite.validate({"todos": todos})
