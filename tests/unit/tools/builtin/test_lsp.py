import socket
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SYSTEM
from holdfast.errors import FileMissing, PermissionDenied, TellModel, ToolError, ToolInputInvalid
from holdfast.runs import Confinement
from holdfast.runtime import ProcessEnvironment
from holdfast.tools.builtin.lsp import find_position, make_lsp_tool
from holdfast.tools.lsp import LanguageServer, LanguageServers
from holdfast.tools.lsp.program import find_server_program

ROTE = LanguageServer(
    name="rote",
    command=(sys.executable, str(Path(__file__).with_name("lsp_server.py"))),
    endings={".py": "python"},
)
PYLSP = LanguageServer(
    name="pylsp", command=(sys.executable, "-m", "pylsp"), endings={".py": "python"}
)
SOURCE = "def alpha(x):\n    return x\n\n\ndef beta():\n    return alpha(1)\n"


@pytest.fixture
async def rote():
    servers = LanguageServers([ROTE], known=())
    yield servers
    await servers.close()


@pytest.fixture
async def pylsp():
    servers = LanguageServers([PYLSP], known=())
    yield servers
    await servers.close()


@pytest.fixture
def source(root):
    (root / "a.py").write_text(SOURCE)
    return root


@pytest.mark.parametrize(
    ("operation", "output"),
    [
        ("goToDefinition", "a.py:6:5: return alpha(1)"),
        ("findReferences", "a.py:1:5: def alpha(x):\n/usr/lib/x.py:8:5"),
        ("goToImplementation", "a.py:2:5: return x"),
        ("hover", "5:11 1"),
        ("documentSymbol", "class Class  a.py:1\n  method method  a.py:2"),
        ("workspaceSymbol", "function wanted  a.py:1"),
        ("prepareCallHierarchy", "function here  a.py:6"),
        ("incomingCalls", "function caller  a.py:1"),
        ("outgoingCalls", "function callee  a.py:2"),
        ("typeHierarchy", "function here  a.py:6\n  supertypes: class Base  a.py:1"),
    ],
)
async def test_every_operation_is_spoken(call, source, rote, operation, output):
    result = await call(
        make_lsp_tool(rote),
        operation=operation,
        file_path="a.py",
        line=6,
        symbol="alpha",
        query="wanted",
    )
    assert result.output == output
    assert result.metadata["server"] == "rote"
    assert result.metadata["sandbox"].endswith("/read-only")


async def test_server_reads_the_workspace_but_changes_nothing_and_reaches_nobody(
    context, source, tmp_path
):
    """What a server does when the code of a workspace makes it do so."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.db").write_text("private")
    (source / "secret").mkdir()
    (source / "secret" / "key").write_text("private")
    listener = socket.create_server(("127.0.0.1", 0))
    server = LanguageServers([ROTE], known=())
    hides = Confinement(hidden=(str(source / "secret"),))
    opener = ProcessEnvironment(hides, SYSTEM).open_reader
    context = msgspec.structs.replace(context, open_reader=opener)
    tool = make_lsp_tool(server)

    async def call(tool, **arguments):
        return await tool.call(tool.validate(arguments), context)

    ask = {"operation": "workspaceSymbol", "file_path": "a.py"}
    try:
        read = f"open:{source}/a.py:r"
        assert "opened" in (await call(tool, **ask, query=read)).output
        for query in (
            f"open:{source}/made.txt:w",
            f"open:{source}/secret/key:r",
            f"open:{tmp_path}/state/journal.db:r",
            f"connect:127.0.0.1:{listener.getsockname()[1]}",
        ):
            assert "refused" in (await call(tool, **ask, query=query)).output, query
    finally:
        listener.close()
        await server.close()
    assert not (source / "made.txt").exists()


def test_a_server_sees_what_interprets_it_and_nothing_else_of_that_place(tmp_path, monkeypatch):
    home = tmp_path / "home"
    for folder in ("bin", "lib", "share", ".ssh"):
        (home / folder).mkdir(parents=True)
    node, script = home / "bin" / "node", tmp_path / "npm" / "bin" / "server"
    script.parent.mkdir(parents=True)
    for program, text in ((node, "\x7fELF"), (script, "#!/usr/bin/env -S node --quiet\n")):
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(node.parent))
    found = find_server_program(str(script), ("--stdio",))
    assert found.argv == (str(node), "--quiet", str(script), "--stdio")
    assert set(found.readable) == {
        str(script.parent),
        str(home / "bin"),
        str(home / "lib"),
    }
    assert found.path.split(":")[:2] == [str(script.parent), str(node.parent)]
    (home / "pyvenv.cfg").write_text("")
    assert find_server_program(str(node), ()).readable == (str(home),)
    assert find_server_program("/bin/true", ()).readable == ()
    assert find_server_program(str(tmp_path / "gone"), ()).argv == (str(tmp_path / "gone"),)
    script.write_text("#!/usr/bin/env no-such-program\n")
    assert find_server_program(str(script), ()).argv == (str(script),)


async def test_real_server_answers(call, source, pylsp):
    tool = make_lsp_tool(pylsp)
    where = {"file_path": "a.py", "line": 6, "symbol": "alpha"}
    definition = await call(tool, operation="goToDefinition", **where)
    assert definition.output == "a.py:1:5: def alpha(x):"
    references = await call(tool, operation="findReferences", **where)
    assert set(references.output.splitlines()) == {
        "a.py:1:5: def alpha(x):",
        "a.py:6:12: return alpha(1)",
    }
    assert "alpha" in (await call(tool, operation="hover", **where)).output
    symbols = await call(tool, operation="documentSymbol", file_path="a.py")
    assert "function beta  a.py:5" in symbols.output
    with pytest.raises(TellModel) as caught:
        await call(tool, operation="incomingCalls", **where)
    assert not caught.value.retry


async def test_server_is_reused_and_sees_changes(call, context, source, rote):
    tool = make_lsp_tool(rote)
    first = await rote.serve(context.workspace, "a.py", context.open_reader)
    ask = {"operation": "hover", "file_path": "a.py"}
    assert (await call(tool, **ask)).output.endswith(" 1")
    assert (await call(tool, **ask)).output.endswith(" 1")
    (source / "a.py").write_text("changed = 1\n")
    assert (await call(tool, **ask)).output.endswith(" 2")
    assert await rote.serve(context.workspace, "a.py", context.open_reader) is first


async def test_closed_servers_have_ended(call, context, source, rote):
    running = await rote.serve(context.workspace, "a.py", context.open_reader)
    assert running.connection.is_alive
    await rote.close()
    assert not running.connection.is_alive


@pytest.mark.parametrize("query", ["crash", "refuse", "garbage"])
async def test_server_that_fails_is_an_error_and_the_next_call_works(call, source, rote, query):
    tool = make_lsp_tool(rote)
    ask = {"operation": "workspaceSymbol", "file_path": "a.py"}
    with pytest.raises(ToolError):
        await call(tool, **ask, query=query)
    assert "fine" in (await call(tool, **ask, query="fine")).output


async def test_an_answer_that_comes_too_late_is_an_error_and_harms_no_other(source, context, rote):
    running = await rote.serve(context.workspace, "a.py", context.open_reader)
    ask = running.connection.request
    with pytest.raises(ToolError):
        await ask("workspace/symbol", {"query": "silence"}, timeout_s=0.05)
    [found] = await ask("workspace/symbol", {"query": "fine"}, timeout_s=20)
    assert found["name"] == "fine"


async def test_without_a_server_it_says_what_to_install(call, source):
    known = LanguageServer(name="x", command=("no-such-server",), endings={".py": "python"})
    with pytest.raises(ToolError) as caught:
        await call(
            make_lsp_tool(LanguageServers(known=(known,))), operation="hover", file_path="a.py"
        )
    assert "no-such-server" in str(caught.value)


async def test_program_inside_the_workspace_is_not_found_by_itself(call, source, monkeypatch):
    program = source / "bin" / "pylsp"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(ToolError):
        await call(make_lsp_tool(LanguageServers()), operation="hover", file_path="a.py")


async def test_server_that_does_not_start_is_an_error(call, source):
    bad = LanguageServer(name="bad", command=("/bin/false",), endings={".py": "python"})
    servers = LanguageServers([bad], known=())
    with pytest.raises(ToolError):
        await call(make_lsp_tool(servers), operation="hover", file_path="a.py")
    await servers.close()


async def test_missing_and_outside_are_refused_before_a_server_starts(call, source, rote):
    for path, error in (("nope.py", FileMissing), ("/etc/passwd", PermissionDenied)):
        with pytest.raises(error):
            await call(make_lsp_tool(rote), operation="hover", file_path=path)


def test_positions_are_counted_as_the_protocol_wants():
    text = "x = '𝄞'; y = 1\r\n  name\n"
    assert find_position(text, 1, 0, "y") == {"line": 0, "character": 10}
    assert find_position(text, 1, 10, "") == {"line": 0, "character": 10}
    assert find_position(text, 2, 0, "") == {"line": 1, "character": 2}
    assert find_position(text, 3, 5, "") == {"line": 2, "character": 0}
    for line, symbol in ((9, ""), (1, "nam")):
        with pytest.raises(TellModel):
            find_position(text, line, 0, symbol)


@pytest.mark.parametrize(
    "arguments", [{}, {"operation": "rename", "file_path": "a"}, {"operation": "hover"}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        make_lsp_tool(LanguageServers()).validate(arguments)
