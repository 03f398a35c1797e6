import os

import pytest

from holdfast.errors import FileMissing, PermissionDenied, TellModel, ToolInputInvalid
from holdfast.tools.builtin.glob import glob


@pytest.fixture
def tree(root):
    for age, path in enumerate(["a.py", "src/b.py", "src/x/c.ts", "src/x/.d.tsx", "out/e.py"]):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
        os.utime(root / path, (1_000 - age, 1_000 - age))
    return root


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("**/*.py", ".", ["a.py", "src/b.py", "out/e.py"]),
        ("*.py", ".", ["a.py", "src/b.py", "out/e.py"]),
        ("src/*.py", ".", ["src/b.py"]),
        ("*.{ts,tsx}", ".", ["src/x/c.ts", "src/x/.d.tsx"]),
        ("x/*", "src", ["src/x/c.ts", "src/x/.d.tsx"]),
        ("**", "src", ["src/b.py", "src/x/c.ts", "src/x/.d.tsx"]),
    ],
)
async def test_files_are_found_newest_first(call, tree, pattern, path, found):
    assert (await call(glob, pattern=pattern, path=path)).output.splitlines() == found


async def test_absolute_pattern_inside_the_workspace_works(call, tree):
    assert (await call(glob, pattern=f"{tree}/src/*.py")).output == "src/b.py"


async def test_gitignore_is_obeyed_nested_too(call, tree):
    (tree / ".gitignore").write_text("out/\n")
    (tree / "src/.gitignore").write_text("*.ts\n")
    output = (await call(glob, pattern="**")).output
    assert "out/e.py" not in output
    assert "c.ts\n" not in output
    assert "src/b.py" in output


async def test_limit_is_told(call, tree):
    result = await call(glob, pattern="**", limit=2)
    assert result.output.splitlines()[:2] == ["a.py", "src/b.py"]
    assert result.metadata == {"count": 5, "is_truncated": True}


async def test_no_match_and_bad_pattern_are_clear(call, tree):
    assert "No file matches" in (await call(glob, pattern="*.rs")).output
    with pytest.raises(TellModel):
        await call(glob, pattern="a[b")


async def test_links_are_not_followed_and_the_outside_is_refused(call, tree):
    (tree / "out2").symlink_to("/etc")
    assert (await call(glob, pattern="**/passwd")).metadata["count"] == 0
    with pytest.raises(PermissionDenied):
        await call(glob, pattern="*", path="/etc")
    with pytest.raises(FileMissing):
        await call(glob, pattern="*", path="nope")


@pytest.mark.parametrize("arguments", [{}, {"pattern": 1}, {"pattern": "a", "limit": 0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        glob.validate(arguments)
