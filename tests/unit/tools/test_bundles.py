"""Tool bundles: installed, pinned, refused when changed, run apart."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import textwrap
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from run_kit import open_run

from holdfast import AsyncClient
from holdfast.errors import AlreadyExists, BundleRefused, NotFound, ToolInputInvalid
from holdfast.settings import load_settings
from holdfast.tools import SandboxOptions, SandboxRunner, ToolRegistry, Workspace
from holdfast.tools import bundle_files as files
from holdfast.tools import bundle_process as process
from holdfast.tools.bundles import LocalToolManager, read_manifest, register_bundles
from holdfast.tools.gate import AutoConfirm, Gate
from holdfast.tools.sandboxed_commands import SandboxedCommands

SHOUT = """
import json, sys
asked = json.load(sys.stdin)
json.dump({"output": asked["arguments"]["text"].upper(), "title": "shouted"}, sys.stdout)
"""


def manifest(**changes) -> dict:
    values = {
        "name": "shout",
        "version": "1.2.0",
        "description": "Shout a text.",
        "command": ["{python}", "{bundle}/main.py"],
        "effect": "read",
        "timeout_s": 20.0,
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def make_bundle(folder: Path, code: str = SHOUT, **changes) -> Path:
    folder.mkdir()
    (folder / "tool.json").write_text(json.dumps(manifest(**changes)))
    (folder / "main.py").write_text(textwrap.dedent(code))
    return folder


@pytest.fixture
def local(tmp_path):
    return LocalToolManager(tmp_path / "tools")


@asynccontextmanager
async def open_bundles(tmp_path, local, *, is_net_open=False, **options):
    """A run in which the installed bundles may be called, in the strongest sandbox there is."""
    registry = ToolRegistry(local.load(), scope="project")
    gate = Gate(approver=AutoConfirm())
    given = SandboxOptions(**{"hidden": (str(tmp_path / "state"),), **options})
    runner = SandboxRunner(Workspace(tmp_path), given)
    commands = SandboxedCommands(runner, is_net_open=lambda: is_net_open)
    try:
        async with open_run(tmp_path, registry=registry, gate=gate, commands=commands) as run:
            yield run
    finally:
        await runner.aclose()


@pytest.fixture(params=["bubblewrap", "landlock"])
def level(request, bubblewrap):
    return request.param


async def test_an_installed_bundle_is_a_tool_like_any_other(tmp_path, local, level):
    pin = local.install(make_bundle(tmp_path / "b"))
    [tool] = local.load()
    assert (tool.name, tool.version, tool.effect, tool.permission) == (
        "shout",
        "1.2.0",
        "read",
        "ask",
    )
    assert tool.source_hash == pin.sha256
    with pytest.raises(ToolInputInvalid):
        tool.validate({"text": 3})
    with pytest.raises(ToolInputInvalid):
        tool.validate({"text": "a", "more": 1})
    async with open_bundles(tmp_path, local, level=level) as run:
        part = await run.call("shout", text="hello")
        [kept] = [
            fact.part for fact in await run.facts() if getattr(fact, "part", None) is not None
        ]
    assert (part.output, part.title, part.state) == ("HELLO", "shouted", "completed")
    assert part.metadata["source_hash"] == pin.sha256
    assert part.metadata["sandbox"].startswith(level)
    assert part.metadata["sandbox"].endswith("/read-only")
    assert kept.metadata["sandbox"] == part.metadata["sandbox"]


async def test_without_consent_it_does_not_run(tmp_path, local):
    local.install(make_bundle(tmp_path / "b"))
    registry = ToolRegistry(local.load(), scope="project")
    async with open_run(tmp_path, registry=registry) as run:
        assert (await run.call("shout", text="x")).state == "error"


def test_a_manifest_may_be_toml_and_take_no_arguments(tmp_path, local):
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "tool.toml").write_text(
        'name = "now"\ndescription = "Say something."\ncommand = ["{bundle}/run"]\n'
        'target = ""\ntags = ["time"]\n'
    )
    (folder / "run").write_text("#!/bin/sh\necho '{}'\n")
    (folder / "run").chmod(0o755)
    local.install(folder)
    [tool] = local.load()
    assert (tool.effect, tool.tags, tool.validate({})) == ("unsafe", ("bundle", "time"), {})
    assert stat.S_IMODE((tmp_path / "tools" / "now" / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "tools" / "now" / "tool.toml").stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["content", "new file", "mode", "gone", "link"])
async def test_a_changed_bundle_is_refused_at_load_and_at_call(tmp_path, local, change):
    local.install(make_bundle(tmp_path / "b"))
    place = tmp_path / "tools" / "shout"
    async with open_bundles(tmp_path, local) as run:
        if change == "content":
            (place / "main.py").write_text("print('evil')")
        elif change == "new file":
            (place / "json.py").write_text("print('evil')")
        elif change == "mode":
            (place / "main.py").chmod(0o755)
        elif change == "gone":
            (place / "main.py").unlink()
        else:
            (place / "main.py").unlink()
            (place / "main.py").symlink_to("/etc/hostname")
        part = await run.call("shout", text="x")
        assert part.state == "error"
        assert "refused" in part.error
    assert local.load() == []
    [found] = local.verify()
    assert found.problem
    assert found == local.verify("shout")[0]


def test_a_sound_bundle_verifies_and_can_be_removed(tmp_path, local):
    pin = local.install(make_bundle(tmp_path / "b"))
    assert [(one.sha256, one.problem) for one in local.verify()] == [(pin.sha256, "")]
    local.remove("shout")
    assert (local.names(), local.load(), local.verify()) == ([], [], [])
    assert not (tmp_path / "tools" / "shout").exists()
    for act in (local.remove, local.verify):
        with pytest.raises(NotFound):
            act("shout")


def test_a_bundle_is_replaced_only_on_request(tmp_path, local):
    local.install(make_bundle(tmp_path / "b"))
    newer = make_bundle(tmp_path / "c", version="2.0.0")
    with pytest.raises(AlreadyExists):
        local.install(newer)
    assert local.install(newer, replace=True).version == "2.0.0"
    assert [tool.version for tool in local.load()] == ["2.0.0"]
    assert sorted(os.listdir(tmp_path / "tools")) == ["shout", "shout.pin.json"]


def test_what_an_interrupted_installation_left_is_no_tool_and_can_be_repaired(tmp_path, local):
    bundle = make_bundle(tmp_path / "b")
    local.install(bundle)
    (tmp_path / "tools" / "shout.pin.json").unlink()
    assert local.load() == []
    local.install(bundle)
    assert len(local.load()) == 1


@pytest.mark.parametrize("content", ["", "{", '{"name": "shout"}'])
def test_a_damaged_pin_refuses(tmp_path, local, content):
    local.install(make_bundle(tmp_path / "b"))
    (tmp_path / "tools" / "shout.pin.json").write_text(content)
    assert local.load() == []
    assert "pin" in local.verify()[0].problem


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../evil"},
        {"name": "a/b"},
        {"name": None},
        {"description": ""},
        {"command": []},
        {"command": ["/bin/sh", "-c", "true"]},
        {"command": ["{bundle}/../../evil"]},
        {"command": ["a\0b"]},
        {"effect": "reconcile"},
        {"permission": "allow"},
        {"parameters": {"type": "string"}},
        {"parameters": {"type": "object", "properties": []}},
        {"parameters": {"type": "object", "description": "x" * 70_000}},
        {"timeout_s": 0},
        {"version": "new"},
        {"unknown": 1},
        {"permissions": {"unknown": 1}},
        {"permissions": {"workspace": "all"}},
        {"permissions": {"read": ["relative"]}},
        {"permissions": {"read": ["/"]}},
        {"permissions": {"write": ["/a/../b"]}},
    ],
    ids=str,
)
def test_an_impossible_manifest_is_refused(tmp_path, local, changes):
    bundle = make_bundle(tmp_path / "b", **changes)
    with pytest.raises(BundleRefused):
        local.install(bundle)
    assert [name for name in os.listdir(tmp_path / "tools") if "pin" in name] == []
    assert not any(name.startswith(".") for name in os.listdir(tmp_path / "tools"))


@pytest.mark.parametrize("text", ["not json", "[" * 100_000, b"\xff\xfe"])
def test_an_unreadable_manifest_is_refused(tmp_path, local, text):
    bundle = make_bundle(tmp_path / "b")
    (bundle / "tool.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(BundleRefused):
        local.install(bundle)


def test_no_manifest_or_two_is_refused(tmp_path, local):
    bundle = make_bundle(tmp_path / "b")
    (bundle / "tool.toml").write_text("")
    for _ in range(2):
        with pytest.raises(BundleRefused):
            local.install(bundle)
        for path in bundle.iterdir():
            path.unlink()
    with pytest.raises(NotFound):
        local.install(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "fault", ["link", "folder link", "pipe", "setuid", "huge", "many", "deep", "name", "secret"]
)
def test_an_unsafe_bundle_is_refused(tmp_path, local, monkeypatch, fault):
    bundle = make_bundle(tmp_path / "b")
    if fault == "link":
        (bundle / "x").symlink_to("/etc/passwd")
    elif fault == "folder link":
        (bundle / "x").symlink_to("/etc", target_is_directory=True)
    elif fault == "pipe":
        os.mkfifo(bundle / "x")
    elif fault == "setuid":
        (bundle / "main.py").chmod(0o4755)
    elif fault == "huge":
        with open(bundle / "x", "wb") as file:
            file.truncate(files.MOST_FILE_BYTES + 1)
    elif fault == "many":
        monkeypatch.setattr(files, "MOST_FILES", 1)
    elif fault == "deep":
        (bundle / "/".join(["d"] * 20)).mkdir(parents=True)
    elif fault == "name":
        (bundle / "a\nb").write_text("")
    else:
        folder = bundle
        bundle = tmp_path / "c"
        bundle.symlink_to(folder)
    with pytest.raises(BundleRefused):
        local.install(bundle)
    assert local.names() == []


def test_a_link_put_in_the_place_of_a_file_is_not_followed(tmp_path):
    (tmp_path / "x").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for name in ("x", "pipe"):
        with pytest.raises(BundleRefused):
            files._open_plain(tmp_path / name, "b")


def test_a_name_that_is_taken_is_left_out(tmp_path, local, caplog):
    local.install(make_bundle(tmp_path / "b"))
    registry = ToolRegistry(local.load())
    register_bundles(registry, tmp_path / "tools")
    assert len(registry) == 1
    assert "left out" in caplog.text


# --- the process -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import sys; sys.exit('bad luck')", "bad luck"),
        ("print('hello')", "JSON"),
        ("print('{\"output\": 3}')", "JSON"),
        ("print('[' * 100000)", "JSON"),
        ("pass", "JSON"),
        ("import os; os.closerange(0, 100)", "JSON"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit code "),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "more than"),
    ],
)
async def test_a_program_that_misbehaves_is_a_failure_of_the_tool(
    tmp_path, local, monkeypatch, code, told
):
    monkeypatch.setattr(process, "MOST_OUTPUT_BYTES", 200_000)
    local.install(make_bundle(tmp_path / "b", code))
    async with open_bundles(tmp_path, local) as run:
        part = await run.call("shout", text="x" * 100)
        assert part.state == "error"
        assert told in part.error
        assert (await run.call("shout", text=1)).state == "error"


async def test_a_program_that_cannot_be_started_is_a_failure_of_the_tool(tmp_path, local):
    local.install(make_bundle(tmp_path / "b", command=["no-such-program"]))
    async with open_bundles(tmp_path, local) as run:
        part = await run.call("shout", text="x")
    assert "exit code 127" in part.error
    assert "no-such-program" in part.error


CHILD = """
    import json, os, subprocess, sys, time
    sys.stdin.read()
    subprocess.Popen(["sleep", "{seconds}"], start_new_session=True)
    {then}
"""


@pytest.mark.parametrize("then", ["print('{}')", "time.sleep(1000)"], ids=["ends", "hangs"])
async def test_what_a_program_starts_ends_with_it(tmp_path, local, level, then):
    seconds = f"{100_000 + os.getpid()}.25"
    code = CHILD.replace("{seconds}", seconds).replace("{then}", then)
    # One that ends may take as long as a slow machine needs to start it.
    limit_s = 2.0 if then == "time.sleep(1000)" else 60.0
    local.install(make_bundle(tmp_path / "b", code, timeout_s=limit_s))
    async with open_bundles(tmp_path, local, level=level) as run:
        part = await run.call("shout", text="x")
    assert (part.state == "completed") == (then != "time.sleep(1000)")
    assert part.state == "completed" or "did not end within 2.0 s" in part.error
    assert not _is_running(seconds)


def _is_running(word: str) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


async def test_cancelling_a_call_ends_its_program(tmp_path, local, level):
    seconds = f"{100_000 + os.getpid()}.75"
    code = CHILD.replace("{seconds}", seconds).replace(
        "{then}", "open('begun', 'w').close(); time.sleep(1000)"
    )
    local.install(make_bundle(tmp_path / "b", code, permissions={"workspace": "write"}))
    async with open_bundles(tmp_path, local, level=level) as run:
        calling = asyncio.create_task(run.call("shout", text="x"))
        while not (tmp_path / "begun").exists():
            await asyncio.to_thread(_is_running, seconds)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert not _is_running(seconds)


async def test_a_long_request_reaches_the_program_whole(tmp_path, local, level):
    local.install(make_bundle(tmp_path / "b"))
    async with open_bundles(tmp_path, local, level=level) as run:
        part = await run.call("shout", text="long " * 1_000_000)
        whole = await run.client.tools.output(run.session_id, part.metadata["artifact"])
    assert whole == b"LONG " * 1_000_000


# --- the permissions -------------------------------------------------------------------

REACH = """
    import json, os, socket, sys
    asked = json.load(sys.stdin)["arguments"]["text"]
    def read(path):
        return open(path).read()
    def write(path):
        open(path, "a").write("!")
        return "written"
    def connect(port):
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        return "connected"
    what, _, which = asked.partition(" ")
    try:
        said = {"read": read, "write": write, "connect": connect}[what](which)
    except OSError as error:
        said = "no: " + type(error).__name__
    json.dump({"output": said}, sys.stdout)
"""


async def reached(tmp_path, local, level, permissions, *asked, **options):
    bundle = tmp_path / f"b{len(list(tmp_path.iterdir()))}"
    local.install(make_bundle(bundle, REACH, permissions=permissions), replace=True)
    place = tmp_path / "ws"
    place.mkdir(exist_ok=True)
    (place / "a.txt").write_text("inside")
    options = {"level": level, **options}
    async with open_bundles(place, local, **options) as run:
        return [(await run.call("shout", text=one)) for one in asked]


async def test_a_program_reads_the_workspace_and_nothing_else_by_default(tmp_path, local, level):
    (tmp_path / "secret").write_text("secret")
    place = tmp_path / "ws"
    own = tmp_path / "tools" / "shout" / "main.py"
    parts = await reached(
        tmp_path,
        local,
        level,
        None,
        f"read {place}/a.txt",
        f"write {place}/a.txt",
        f"read {tmp_path}/secret",
        f"read {place}/state/journal.db",
        f"write {own}",
    )
    said = [part.output for part in parts]
    assert said[0] == "inside"
    assert all(one.startswith("no: ") for one in said[1:]), said
    assert (place / "a.txt").read_text() == "inside"


async def test_a_program_writes_where_its_manifest_says(tmp_path, local, level):
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "x").write_text("extra")
    place = tmp_path / "ws"
    permissions = {"workspace": "write", "write": [str(extra)]}
    asked = (f"write {place}/a.txt", f"write {extra}/x", f"read {extra}/x")
    parts = await reached(tmp_path, local, level, permissions, *asked)
    assert [part.output for part in parts] == ["written", "written", "extra!"]
    assert (place / "a.txt").read_text() == "inside!"
    assert parts[0].metadata["sandbox"].endswith("/workspace-write")


async def test_a_program_reads_further_directories_but_does_not_write_there(tmp_path, local, level):
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "x").write_text("extra")
    asked = (f"read {extra}/x", f"write {extra}/x")
    parts = await reached(tmp_path, local, level, {"read": [str(extra)]}, *asked)
    assert parts[0].output == "extra"
    assert parts[1].output.startswith("no: ")


async def test_a_program_without_business_in_the_workspace_does_not_see_it(tmp_path, local, level):
    place = tmp_path / "ws"
    asked = (f"read {place}/a.txt", "read main.py")
    first, second = await reached(tmp_path, local, level, {"workspace": "none"}, *asked)
    assert first.output.startswith("no: ")
    assert "import json" in second.output


async def test_a_read_only_run_has_no_program_that_writes(tmp_path, local, level):
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "x").write_text("extra")
    permissions = {"workspace": "write", "write": [str(extra)]}
    asked = (f"write {tmp_path}/ws/a.txt", f"write {extra}/x", f"read {extra}/x")
    parts = await reached(tmp_path, local, level, permissions, *asked, profile="read-only")
    assert [part.output.partition(":")[0] for part in parts] == ["no", "no", "extra"]


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_a_program_has_the_network_only_if_it_says_so_and_the_operator_too(
    tmp_path, local, level, listener
):
    asked = f"connect {listener}"
    [unasked] = await reached(tmp_path, local, level, None, asked, is_net_open=True)
    assert unasked.output.startswith("no: ")
    [closed] = await reached(tmp_path, local, level, {"network": True}, asked)
    assert closed.state == "error"
    assert "network" in closed.error
    [opened] = await reached(tmp_path, local, level, {"network": True}, asked, is_net_open=True)
    assert opened.output == "connected"
    assert opened.metadata["sandbox"].endswith("/read-only-network")


async def test_without_a_sandbox_no_program_runs(tmp_path, local, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.launcher_pool.sys.platform", "elsewhere")
    local.install(make_bundle(tmp_path / "b"))
    async with open_bundles(tmp_path, local) as run:
        part = await run.call("shout", text="x")
    assert part.state == "error"
    assert "sandbox" in part.error
    async with open_run(
        tmp_path,
        registry=ToolRegistry(local.load(), scope="project"),
        gate=Gate(approver=AutoConfirm()),
    ) as run:
        assert (await run.call("shout", text="x")).state == "error"


async def test_a_bundle_in_the_hidden_state_directory_runs_and_sees_nothing_else_of_it(
    tmp_path, level
):
    local = LocalToolManager(tmp_path / "ws" / "state" / "tools")
    asked = (f"read {tmp_path}/ws/state/journal.db", f"read {tmp_path}/ws/a.txt")
    parts = await reached(tmp_path, local, level, {"workspace": "write"}, *asked)
    assert parts[0].output.startswith("no: ")
    assert parts[1].output == "inside"


def test_a_bundle_may_not_change_what_is_installed(tmp_path, local):
    for path in (tmp_path, tmp_path / "tools", tmp_path / "tools" / "other"):
        bundle = make_bundle(tmp_path / f"b-{path.name}", permissions={"write": [str(path)]})
        with pytest.raises(BundleRefused):
            local.install(bundle)
    assert local.names() == []


async def test_whoever_consents_sees_what_the_program_may_reach(tmp_path, local):
    permissions = {"network": True, "workspace": "write", "read": ["/srv/a"], "write": ["/srv/b"]}
    local.install(make_bundle(tmp_path / "b", permissions=permissions))
    [tool] = local.load()
    shown = await tool.preview({}, None)
    for part in ("changes the workspace", "reads /srv/a", "changes /srv/b", "every host"):
        assert part in shown


async def test_a_program_sees_its_call_and_a_clean_environment(tmp_path, local, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    code = """
        import json, os, sys
        asked = json.load(sys.stdin)
        shown = {"context": asked["context"], "env": dict(os.environ), "cwd": os.getcwd()}
        json.dump({"output": json.dumps(shown)}, sys.stdout)
    """
    local.install(make_bundle(tmp_path / "b", code))
    async with open_bundles(tmp_path, local) as run:
        part = await run.call("shout", text="x")
        shown = json.loads(part.output)
        assert shown["context"]["session_id"] == run.session_id
        assert shown["context"]["idempotency_key"].endswith(part.call_id)
    assert shown["cwd"] == str(tmp_path)
    assert "secret" not in part.output
    assert shown["env"]["TOOL_BUNDLE_DIR"] == str(tmp_path / "tools" / "shout")


async def test_a_failing_program_may_say_so_itself(tmp_path, local):
    code = 'print(\'{"output": "no", "is_error": true}\')'
    local.install(make_bundle(tmp_path / "b", code))
    async with open_bundles(tmp_path, local) as run:
        part = await run.call("shout", text="x")
    assert (part.state, part.error) == ("error", "no")


def test_a_directory_that_cannot_be_read_has_no_tools_and_says_so(tmp_path, caplog):
    (tmp_path / "tools").write_text("no directory")
    manager = LocalToolManager(tmp_path / "tools")
    assert manager.load() == []
    assert "cannot be read" in caplog.text
    with pytest.raises(BundleRefused):
        manager.verify()


async def test_the_client_offers_installed_bundles(tmp_path):
    settings = load_settings(overrides={"tools.dir": tmp_path / "tools"}).settings
    LocalToolManager(tmp_path / "tools").install(make_bundle(tmp_path / "b"))
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        client.approver = AutoConfirm()
        called = await client.tools.call("shout", {"text": "hey"})
        assert called.part.output == "HEY"
        assert (await client.runs.get(called.run.id)).status == "completed"


def test_reading_a_manifest_names_every_fault(tmp_path):
    bundle = make_bundle(tmp_path / "b", effect="maybe", timeout_s=-1)
    with pytest.raises(BundleRefused) as caught:
        read_manifest(bundle, "b")
    assert "effect" in str(caught.value)
    assert "timeout_s" in str(caught.value)
