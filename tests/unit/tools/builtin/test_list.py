import pytest

from holdfast.errors import FileMissing, FileUnsuitable, PermissionDenied, ToolInputInvalid
from holdfast.tools.builtin.list import list_directory


@pytest.fixture
def tree(root):
    for path in ("src/a.py", "src/deep/b.py", "docs/x.md", ".git/config", "node_modules/m/i.js"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "link").symlink_to("src")
    return root


async def test_tree_shows_directories_files_and_links(call, tree):
    result = await call(list_directory)
    assert result.output.splitlines() == [
        "./",
        "  docs/",
        "    x.md",
        "  link@",
        "  src/",
        "    a.py",
        "    deep/",
        "      b.py",
    ]


async def test_part_of_the_tree_and_globs_to_leave_out(call, tree):
    result = await call(list_directory, path="src", ignore=["*.py"])
    assert result.output.splitlines() == ["src/", "  deep/"]
    result = await call(list_directory, path="src", ignore=["deep/"])
    assert result.output.splitlines() == ["src/", "  a.py"]


async def test_gitignore_is_obeyed_but_not_for_what_is_asked_for(call, tree):
    (tree / ".gitignore").write_text("docs/\n*.py\n!a.py\n")
    assert "docs" not in (await call(list_directory)).output
    assert "b.py" not in (await call(list_directory)).output
    assert "a.py" in (await call(list_directory)).output
    assert "x.md" in (await call(list_directory, path="docs")).output


async def test_what_is_near_comes_first_when_there_is_not_room(call, tree):
    result = await call(list_directory, limit=4)
    assert "  docs/" in result.output
    assert "  src/…" in result.output
    assert "b.py" not in result.output
    assert result.metadata["is_truncated"]


async def test_empty_directory_is_said_to_be_empty(call, root):
    assert "(empty)" in (await call(list_directory)).output


async def test_file_missing_and_outside_are_refused(call, tree):
    with pytest.raises(FileUnsuitable):
        await call(list_directory, path="src/a.py")
    with pytest.raises(FileMissing):
        await call(list_directory, path="nope")
    (tree / "out").symlink_to("/etc")
    for path in ("/etc", "..", "out"):
        with pytest.raises(PermissionDenied):
            await call(list_directory, path=path)


@pytest.mark.parametrize("arguments", [{"path": 1}, {"ignore": "x"}, {"limit": 0}, {"x": 1}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        list_directory.validate(arguments)
