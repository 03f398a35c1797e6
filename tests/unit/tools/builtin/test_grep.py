import asyncio
import random

import machine
import pytest
from msgspec.structs import replace

from holdfast.errors import FileMissing, PermissionDenied, TellModel, ToolInputInvalid
from holdfast.tools.builtin.grep import grep, prepare, run_search


@pytest.fixture(params=["ripgrep", "python"])
def search(request, context):
    ripgrep = machine.program("rg", "ripgrep") if request.param == "ripgrep" else None

    async def go(pattern, path=".", budget_s=20.0, limit=100, **how):
        how = {"include": "", "ignore_case": False, **how}
        prepared = replace(prepare(pattern, limit=limit, **how), budget_s=budget_s)
        return await run_search(context, prepared, path, ripgrep)

    return go


@pytest.fixture
def tree(root):
    files = {
        "a.py": "import os\n\ndef alpha(x):\n    return x\n",
        "src/b.py": "def beta():\n    return alpha(1)\n",
        "src/c.txt": "Alpha beta\r\nsecond alpha line\r\n",
        "latin.txt": "grüne alpha\n".encode("latin-1"),
        "wide.txt": "alpha in utf-16\n".encode("utf-16"),
        "marked.txt": b"\xef\xbb\xbfalpha marked\n",
        "bin.dat": b"alpha\x00\x01\x02",
        ".hidden/h.txt": "alpha hidden\n",
        "ignored/i.txt": "alpha ignored\n",
        "src/skip.log": "alpha log\n",
        "src/keep.log": "alpha keep\n",
        ".git/config": "alpha git\n",
        ".gitignore": "ignored/\n*.log\n",
        "src/.gitignore": "!keep.log\n",
        ".ignore": "a.py\n",
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (root / path).write_bytes(data)
    (root / "link.py").symlink_to("a.py")
    (root / "out").symlink_to("/etc")
    return root


async def test_lines_are_named_by_path_and_number(search, tree):
    result = await search("alpha")
    assert result.output.splitlines() == [
        ".hidden/h.txt:1: alpha hidden",
        "a.py:3: def alpha(x):",
        "latin.txt:1: grüne alpha",
        "marked.txt:1: alpha marked",
        "src/b.py:2:     return alpha(1)",
        "src/c.txt:2: second alpha line",
        "src/keep.log:1: alpha keep",
        "wide.txt:1: alpha in utf-16",
    ]
    assert result.metadata == {"matches": 8, "files": 8, "is_truncated": False}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"def \w+\(", {"a.py:3", "src/b.py:1"}),
        (r"^import|^def beta", {"a.py:1", "src/b.py:1"}),
        (r"gr.ne", {"latin.txt:1"}),
        (r"grüne", {"latin.txt:1"}),
        (r"(?i)^ALPHA beta", {"src/c.txt:1"}),
        (r"line$", {"src/c.txt:2"}),
        (r"return\b.x$", {"a.py:4"}),
        (r"colou?r|alphax*\(1", {"src/b.py:2"}),
        (r"\x61lpha marked", {"marked.txt:1"}),
        (r"[a]lpha mar[k]ed", {"marked.txt:1"}),
        (r"al{1}pha m", {"marked.txt:1"}),
        (r"(zz)?marked", {"marked.txt:1"}),
        (r"nothing like it", set()),
    ],
)
async def test_patterns_mean_the_same_with_and_without_ripgrep(search, tree, pattern, expected):
    result = await search(pattern)
    lines = result.output.splitlines() if result.metadata["matches"] else []
    assert {":".join(line.split(":")[:2]) for line in lines} == expected


async def test_case_can_be_ignored(search, tree):
    result = await search("ALPHA BETA", ignore_case=True)
    assert result.output == "src/c.txt:1: Alpha beta"


async def test_path_and_include_narrow_the_search(search, tree):
    assert (await search("alpha", path="src", include="*.py")).metadata["matches"] == 1
    assert (await search("alpha", include="src/**")).metadata["matches"] == 3
    assert (await search("alpha", path="a.py")).metadata["matches"] == 1


async def test_ignored_directory_is_searched_when_it_is_named(search, tree):
    assert (await search("alpha", path="ignored")).output == "ignored/i.txt:1: alpha ignored"


async def test_limit_is_told(search, tree):
    result = await search("alpha", limit=2)
    assert result.metadata["matches"] == 2
    assert result.metadata["is_truncated"]
    assert result.output.splitlines()[1] == "a.py:3: def alpha(x):"


async def test_hundred_results_unless_asked(call, root):
    (root / "many.txt").write_text("hit\n" * 250)
    assert (await call(grep, pattern="hit")).metadata["matches"] == 100
    assert (await call(grep, pattern="hit", limit=1_000)).metadata["matches"] == 250


async def test_long_lines_are_cut(search, root):
    (root / "long.txt").write_text("needle" + "x" * 100_000)
    assert len((await search("needle")).output) < 1_000


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "a{2,1}", "*a", "{", "(a{99}){999}", "(?x)a", "x" * 2_001, r"(\w{99}){50}"],
)
async def test_bad_expression_is_told(search, root, pattern):
    with pytest.raises(TellModel) as caught:
        await search(pattern)
    assert caught.value.retry


@pytest.mark.parametrize("pattern", ["return (?=x)", "(?<!a)b", r"(a)\1"])
async def test_what_the_engine_lacks_is_told_before_and_after(search, root, pattern):
    shown = grep.parameters["properties"]["pattern"]["description"]
    assert "no lookaround" in shown and "no back references" in shown
    with pytest.raises(TellModel, match="no lookaround, no back references"):
        await search(pattern)


async def test_expression_that_would_backtrack_takes_no_time(search, root):
    (root / "evil.txt").write_text("x" * 60_000 + "\n")
    result = await search(r"(x|xx)+(y|z)(x|xx)+(x|xx)+$|^(x+x+)+y", budget_s=5)
    assert result.metadata["matches"] == 0


async def test_costly_search_is_stopped_and_the_loop_goes_on(search, root):
    bits = random.Random(1)
    lines = ["".join(bits.choices("01", k=4_000)) for _ in range(200)]
    (root / "evil.txt").write_text("\n".join(lines))
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    with pytest.raises(TellModel):
        await search(r"[01]*1[01]{1500}x", budget_s=0.2)
    ticking.cancel()
    assert ticks > 3


async def test_of_endless_lines_the_beginning_is_searched_and_told(search, root):
    (root / "evil.txt").write_text("01" * 50_000)
    result = await search(r"[01]*1[01]{1500}x")
    assert "only the beginning was searched" in result.output
    (root / "evil.txt").write_text("01" * 50_000 + "needle")
    assert (await search("needle")).metadata["matches"] == 1


async def test_missing_path_bad_include_and_outside_are_refused(search, tree):
    with pytest.raises(FileMissing):
        await search("a", path="nope")
    with pytest.raises(TellModel):
        await search("a", include="[")
    for path in ("/etc", "out", ".."):
        with pytest.raises(PermissionDenied):
            await search("root", path=path)


async def test_broken_ripgrep_is_done_without(context, tree, tmp_path):
    broken = tmp_path / "rg"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    prepared = prepare("alpha", include="", ignore_case=False, limit=100)
    result = await run_search(context, prepared, ".", str(broken))
    assert result.metadata["matches"] == 8


@pytest.mark.parametrize("arguments", [{}, {"pattern": ""}, {"pattern": 1}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        grep.validate(arguments)
