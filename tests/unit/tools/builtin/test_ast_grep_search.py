import sys

import pytest

from holdfast.errors import (
    FileMissing,
    MissingExtra,
    PermissionDenied,
    TellModel,
    ToolInputInvalid,
)
from holdfast.tools.builtin.ast_grep_search import ast_grep_search


@pytest.fixture
def tree(root):
    files = {
        "a.py": "print(1)\nx = [print( 2 )]\n# print(3)\n",
        "src/b.py": "def f():\n    print(\n        4\n    )\n",
        "c.js": "print(5)",
        "ignored.py": "print(6)",
        ".gitignore": "ignored.py\n",
        "bin.py": b"print(7)\0",
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (root / path).write_bytes(data)
    return root


async def test_structure_is_found_whatever_its_spacing(call, tree):
    result = await call(ast_grep_search, pattern="print($X)", language="python")
    assert result.output.splitlines() == [
        "a.py:1-1: print(1)",
        "a.py:2-2: print( 2 )",
        "src/b.py:2-4: print(",
        "            4",
        "        )",
    ]
    assert result.metadata == {"matches": 3, "is_truncated": False}


async def test_paths_language_and_limit_narrow_the_search(call, tree):
    async def count(**more):
        arguments = {"pattern": "print($X)", "language": "python", **more}
        return (await call(ast_grep_search, **arguments)).metadata["matches"]

    assert await count(paths=["src"]) == 1
    assert await count(paths=["a.py", "src"]) == 3
    assert await count(language="javascript") == 1
    assert await count(limit=2) == 2
    assert await count(paths=["ignored.py"]) == 1


async def test_nothing_found_is_said(call, tree):
    result = await call(ast_grep_search, pattern="nope($X)", language="python")
    assert "Nothing matches in 2 python files" in result.output


async def test_bad_pattern_is_told(call, tree):
    with pytest.raises(TellModel) as caught:
        await call(ast_grep_search, pattern=" ", language="python")
    assert "backtrace" not in caught.value.text


async def test_missing_and_outside_are_refused(call, tree):
    with pytest.raises(FileMissing):
        await call(ast_grep_search, pattern="x", language="python", paths=["nope"])
    with pytest.raises(PermissionDenied):
        await call(ast_grep_search, pattern="x", language="python", paths=["/etc"])


async def test_missing_package_is_named(call, tree, monkeypatch):
    monkeypatch.setitem(sys.modules, "ast_grep_py", None)
    with pytest.raises(MissingExtra) as caught:
        await call(ast_grep_search, pattern="x", language="python")
    assert "holdfast[code]" in caught.value.hint


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "x"},
        {"pattern": "", "language": "python"},
        {"pattern": "x", "language": "cobol"},
    ],
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        ast_grep_search.validate(arguments)
