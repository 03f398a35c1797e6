import pytest

from holdfast.errors import PermissionDenied, TellModel, ToolInputInvalid
from holdfast.sandbox import Workspace
from holdfast.tools.builtin.externaldirectory import externaldirectory, restore_grants
from holdfast.tools.builtin.read import read
from holdfast.tools.builtin.write import write


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("found")
    return str(tmp_path / "outside")


async def test_granted_directory_can_be_read_but_not_written(call, outside):
    with pytest.raises(PermissionDenied):
        await call(read, file_path=f"{outside}/f")
    await call(externaldirectory, path=outside)
    assert "found" in (await call(read, file_path=f"{outside}/f")).output
    with pytest.raises(PermissionDenied):
        await call(write, file_path=f"{outside}/g", content="")
    await call(externaldirectory, path=outside, writable=True)
    await call(write, file_path=f"{outside}/g", content="")


async def test_grants_come_back_when_a_session_is_resumed(call, context, root, outside, tmp_path):
    (tmp_path / "gone").mkdir()
    await call(externaldirectory, path=outside)
    await call(externaldirectory, path=str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    fresh = Workspace(root)
    assert await restore_grants(fresh, context.state) == (str(tmp_path / "gone"),)
    assert fresh.grants == (outside,)


def test_it_asks_by_default_and_names_the_real_directory(context, outside, tmp_path):
    assert externaldirectory.permission == "ask"
    (tmp_path / "link").symlink_to(outside)
    targets = externaldirectory.targets({"path": str(tmp_path / "link")}, context.workspace)
    assert targets == (outside,)


@pytest.mark.parametrize("path", ["/no/such/place", "/", "/etc/passwd"])
async def test_what_cannot_be_granted_is_told(call, path):
    with pytest.raises(TellModel):
        await call(externaldirectory, path=path)


@pytest.mark.parametrize("arguments", [{}, {"path": "relative"}, {"path": "/x", "writable": 1}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        externaldirectory.validate(arguments)
