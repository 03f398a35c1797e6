import os
import socket
import stat

import pytest

from holdfast.errors import (
    FileChanged,
    FileError,
    FileMissing,
    FileUnsuitable,
    PermissionDenied,
    UsageError,
)
from holdfast.sandbox import PathRules, Workspace
from holdfast.sandbox.beneath import KernelFinder


def link(target, at):
    at.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, at)


def test_kernel_finder_is_used_where_the_kernel_has_it():
    assert KernelFinder.is_supported()


@pytest.mark.parametrize("path", ["src/a.py", "./src//a.py", "src/../src/a.py", "src/./a.py"])
def test_file_inside_is_read(ws, path):
    assert ws.read(path) == b"inside"
    assert ws.canonical(path) == "src/a.py"


def test_absolute_path_inside_is_the_same_file(ws, place):
    assert ws.read(str(place / "ws/src/a.py")) == b"inside"
    assert ws.canonical(str(place / "ws/src/a.py")) == "src/a.py"


@pytest.mark.parametrize(
    "path",
    ["../outside/secret", "/etc/passwd", "src/../../outside/secret", "..", "/proc/self/environ"],
)
def test_path_out_is_refused(ws, path):
    with pytest.raises(PermissionDenied) as caught:
        ws.read(path)
    assert caught.value.code == "policy.denied"
    with pytest.raises(PermissionDenied):
        ws.write(path, b"x")


@pytest.mark.parametrize(
    ("at", "target"),
    [
        ("l", "src/a.py"),
        ("deep/er/l", "../../src/a.py"),
        ("l", "/ABS/src/a.py"),
        ("l", "src/../src/./a.py"),
    ],
)
def test_link_that_stays_inside_is_followed(ws, place, at, target):
    link(target.replace("/ABS", str(place / "ws")), place / "ws" / at)
    assert ws.read(at) == b"inside"
    assert ws.canonical(at) == "src/a.py"


def test_linked_directory_inside_is_entered(ws, place):
    link("src", place / "ws/d")
    assert ws.read("d/a.py") == b"inside"
    assert [entry.path for entry in ws.scandir("d")] == ["src/a.py"]


@pytest.mark.parametrize(
    "target",
    ["../outside/secret", "/etc/passwd", "src/../../outside/secret", "/ABS/ws/../outside/secret"],
)
def test_link_that_leads_out_is_refused(ws, place, target):
    link(target.replace("/ABS", str(place)), place / "ws/l")
    with pytest.raises(PermissionDenied):
        ws.read("l")
    with pytest.raises(PermissionDenied):
        ws.write("l", b"x")
    with pytest.raises(PermissionDenied):
        ws.stat("l")
    assert (place / "outside/secret").read_text() == "secret"


def test_linked_directory_out_is_refused_in_the_middle(ws, place):
    link("../outside", place / "ws/d")
    for action in (
        lambda: ws.read("d/secret"),
        lambda: ws.write("d/new", b""),
        lambda: ws.scandir("d"),
        lambda: ws.make_directory("d/x"),
    ):
        with pytest.raises(PermissionDenied):
            action()
    assert os.listdir(place / "outside") == ["secret"]


def test_magic_links_of_proc_lead_nowhere(ws, place):
    fd = os.open(place / "outside", os.O_RDONLY)
    link(f"/proc/self/fd/{fd}", place / "ws/m")
    try:
        with pytest.raises(PermissionDenied):
            ws.read("m/secret")
    finally:
        os.close(fd)


def test_links_in_a_circle_are_an_error(ws, place):
    link("b", place / "ws/a")
    link("a", place / "ws/b")
    with pytest.raises(FileError):
        ws.read("a")


def test_writing_through_a_link_keeps_the_link(ws, place):
    link("src/a.py", place / "ws/l")
    ws.write("l", b"new")
    assert (place / "ws/l").is_symlink()
    assert (place / "ws/src/a.py").read_bytes() == b"new"


def test_missing_file_is_named(ws):
    for path in ("nope", "no/way/nope"):
        with pytest.raises(FileMissing) as caught:
            ws.read(path)
        assert caught.value.context["path"] == path


def test_file_on_the_way_is_an_error(ws):
    with pytest.raises(FileError):
        ws.read("src/a.py/b")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5_000])
def test_text_that_is_no_path_is_an_error(ws, path):
    with pytest.raises(FileError):
        ws.read(path)


def test_pipes_sockets_devices_and_directories_are_refused_without_hanging(ws, place):
    os.mkfifo(place / "ws/fifo")
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(place / "ws")
    try:
        server.bind("sock")
    finally:
        os.chdir(here)
    for path in ("fifo", "sock", "src", "."):
        with pytest.raises(FileUnsuitable):
            ws.read(path)
        with pytest.raises(FileUnsuitable):
            ws.write(path, b"x")
    server.close()
    assert stat.S_ISFIFO((place / "ws/fifo").stat().st_mode)


def test_write_makes_parents_and_keeps_the_mode(ws, place):
    ws.write("new/deep/file.sh", b"1")
    target = place / "ws/new/deep/file.sh"
    target.chmod(0o750)
    change = ws.write("new/deep/file.sh", b"2")
    assert (change.before, change.after, change.path) == (b"1", b"2", "new/deep/file.sh")
    assert target.read_bytes() == b"2"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert os.listdir(target.parent) == ["file.sh"]


def test_failed_change_writes_nothing_and_makes_no_parents(ws, place):
    def fail(_before):
        raise ValueError

    with pytest.raises(ValueError):
        ws.update("brand/new", fail)
    assert not (place / "ws/brand").exists()


def test_change_by_somebody_else_is_not_lost(ws, place):
    target = place / "ws/src/a.py"
    seen = []

    def change(before):
        if not seen:
            target.write_bytes(b"theirs")
        seen.append(before)
        return before + b"+ours"

    ws.update("src/a.py", change)
    assert target.read_bytes() == b"theirs+ours"
    assert seen == [b"inside", b"theirs"]


def test_file_that_never_rests_is_left_alone(ws, place):
    target = place / "ws/src/a.py"
    count = iter(range(10_000))

    def change(_before):
        target.write_text(f"theirs {next(count)}")
        return b"ours"

    with pytest.raises(FileChanged) as caught:
        ws.update("src/a.py", change)
    assert caught.value.is_retryable
    assert target.read_text().startswith("theirs")
    assert os.listdir(target.parent) == ["a.py"]


def test_same_content_is_not_written_again(ws, place):
    before = (place / "ws/src/a.py").stat().st_mtime_ns
    ws.write("src/a.py", b"inside")
    assert (place / "ws/src/a.py").stat().st_mtime_ns == before


def test_huge_file_is_refused_before_it_fills_memory(ws, place):
    with open(place / "ws/huge", "wb") as stream:
        stream.truncate(10**12)
    with pytest.raises(FileUnsuitable):
        ws.read("huge", max_bytes=1_000)


def test_listing_names_kinds_and_sorts(ws, place):
    (place / "ws/z").mkdir()
    link("../outside", place / "ws/out")
    assert [(entry.name, entry.kind) for entry in ws.scandir()] == [
        ("out", "link"),
        ("src", "directory"),
        ("z", "directory"),
    ]
    detailed = ws.scandir("src", details=True)
    assert detailed[0].size == len("inside")
    assert detailed[0].mtime_ns > 0


def test_blocked_paths_cannot_be_reached_even_through_links(place, finder):
    ws = Workspace(
        place / "ws",
        rules=PathRules(blocked=("**/.git/**", "keys", "**/*.pem")),
        finder=finder,
    )
    for path in (".git/config", "keys/a", "x/b.pem"):
        (place / "ws" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "ws" / path).write_text("secret")
    link(".git/config", place / "ws/harmless.txt")
    link("keys", place / "ws/k")
    for path in (".git/config", "keys/a", "x/b.pem", "harmless.txt", "k/a"):
        with pytest.raises(PermissionDenied):
            ws.read(path)
    assert [entry.name for entry in ws.scandir()] == ["harmless.txt", "k", "src", "x"]
    with pytest.raises(PermissionDenied):
        ws.write("sub/.git/hooks/pre-commit", b"x")
    assert not (place / "ws/sub").exists()


def test_only_allowed_paths_can_be_reached_and_block_wins(place, finder):
    rules = PathRules(allowed=("**/*.py",), blocked=("src/b.py",))
    ws = Workspace(place / "ws", rules=rules, finder=finder)
    (place / "ws/src/b.py").write_text("b")
    (place / "ws/src/c.txt").write_text("c")
    assert ws.read("src/a.py") == b"inside"
    assert [entry.name for entry in ws.scandir("src")] == ["a.py"]
    for path in ("src/b.py", "src/c.txt"):
        with pytest.raises(PermissionDenied):
            ws.read(path)


def test_what_git_keeps_is_read_only_unless_said_otherwise(ws, place):
    (place / "ws/.git").mkdir()
    (place / "ws/.git/config").write_text("x")
    assert ws.read(".git/config") == b"x"
    with pytest.raises(PermissionDenied):
        ws.write(".git/hooks/pre-commit", b"evil")


def test_granted_directory_is_in_reach_by_its_absolute_path_only(ws, place):
    outside = str(place / "outside")
    with pytest.raises(PermissionDenied):
        ws.read(f"{outside}/secret")
    assert ws.grant(outside) == outside
    assert ws.grants == (outside,)
    assert ws.read(f"{outside}/secret") == b"secret"
    assert ws.canonical(f"{outside}/secret") == f"{outside}/secret"
    with pytest.raises(PermissionDenied):
        ws.write(f"{outside}/secret", b"x")
    with pytest.raises(PermissionDenied):
        ws.read("../outside/secret")
    ws.grant(outside, is_writable=True)
    ws.write(f"{outside}/new", b"x")
    assert ws.grants == (outside,)


def test_link_into_a_grant_is_still_a_way_out(ws, place):
    ws.grant(place / "outside")
    link("../outside/secret", place / "ws/l")
    with pytest.raises(PermissionDenied):
        ws.read("l")


@pytest.mark.parametrize(
    "path", ["/", "/no/such/place", "/etc/passwd", "/proc", "/proc/self", "/dev/fd"]
)
def test_what_cannot_be_granted_is_refused(ws, path):
    with pytest.raises(UsageError):
        ws.grant(path)


def test_missing_root_is_refused(tmp_path):
    with pytest.raises(UsageError):
        Workspace(tmp_path / "nope")


def test_directories_are_made_inside_only(ws, place):
    assert ws.make_directory("p/q") == "p/q"
    assert (place / "ws/p/q").is_dir()
    assert ws.make_directory("p/q") == "p/q"
    with pytest.raises(FileUnsuitable):
        ws.make_directory("src/a.py")


def test_target_of_an_unreachable_path_is_absolute(ws, place):
    assert ws.canonical("../outside/x") == str(place / "outside/x")
    assert ws.canonical("not/yet/there") == "not/yet/there"


def test_unreadable_file_is_an_error(ws, place, as_nobody):
    (place / "ws/src/a.py").chmod(0)
    with as_nobody(), pytest.raises(FileError):
        ws.read("src/a.py")


def test_unwritable_directory_is_an_error_and_leaves_nothing(ws, place, as_nobody):
    (place / "ws/src").chmod(0o555)
    with as_nobody(), pytest.raises(FileError):
        ws.write("src/a.py", b"new")
    assert (place / "ws/src/a.py").read_text() == "inside"
    (place / "ws/src").chmod(0o755)
    assert os.listdir(place / "ws/src") == ["a.py"]


def test_an_output_file_is_made_emptied_or_appended_to(ws, place):
    with ws.open_output("src/new") as stream:
        stream.write(b"one")
    with ws.open_output("src/new", is_append=True) as stream:
        stream.write(b"two")
    assert (place / "ws" / "src" / "new").read_bytes() == b"onetwo"
    with ws.open_output("src/new") as stream:
        stream.write(b"x")
    assert (place / "ws" / "src" / "new").read_bytes() == b"x"


@pytest.mark.parametrize("path", ["../outside/secret", "/etc/hosts", ".git/config", "out/secret"])
def test_an_output_file_outside_or_read_only_is_refused(ws, place, path):
    (place / "ws" / ".git").mkdir()
    (place / "ws" / "out").symlink_to(place / "outside")
    with pytest.raises(PermissionDenied):
        ws.open_output(path)
    assert (place / "outside" / "secret").read_text() == "secret"


@pytest.mark.parametrize("path", ["src", "."])
def test_an_output_file_must_be_a_regular_one(ws, path):
    with pytest.raises(FileUnsuitable):
        ws.open_output(path)


def test_trees_say_what_may_be_written(ws, place):
    ws.grant(place / "outside")
    assert ws.trees == ((str(place / "ws"), True), (str(place / "outside"), False))


@pytest.mark.parametrize("name", [".git", ".git/hooks"])
def test_what_git_runs_cannot_be_granted_for_writing(place, finder, name):
    (place / "outside" / ".git" / "hooks").mkdir(parents=True)
    workspace = Workspace(place / "ws", finder=finder)
    with pytest.raises(PermissionDenied):
        workspace.grant(place / "outside" / name, is_writable=True)
    granted = workspace.grant(place / "outside" / name)
    assert workspace.scandir(granted) is not None
