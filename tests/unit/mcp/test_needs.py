"""What a program needs is found out before it is added, and what is wrong is named afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import McpFailed, UsageError
from holdfast.mcp.causes import check_program, find_cause
from holdfast.mcp.grants import GrantBook
from holdfast.mcp.needs import find_needs
from holdfast.settings import McpEndpoint, check_names
from holdfast.tools import EgressRefusal


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def endpoint(**said: object) -> McpEndpoint:
    return McpEndpoint.model_validate({"transport": "stdio", "command": "sh", **said})


def test_program_of_the_system_needs_nothing():
    needs = find_needs("one", ["sh", "-c", "true"], cache_dir="/c")
    assert (needs.command, needs.args) == ("sh", ("-c", "true"))
    assert not needs.is_more


def test_program_of_a_virtual_environment_needs_all_of_it(tmp_path: Path):
    make_program(tmp_path / "venv/bin/server")
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    needs = find_needs("one", [str(tmp_path / "venv/bin/server")], cache_dir="/c")
    assert str(tmp_path / "venv") in needs.readable
    assert not needs.hosts


def test_program_on_the_search_path_alone_is_written_down_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = make_program(tmp_path / "tools" / "server")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    needs = find_needs("one", ["server", "x"], cache_dir="/c")
    assert [needs.command, *needs.args][-2:] == [str(program), "x"]
    assert str(program.parent) in needs.readable


def test_npx_needs_its_registry_and_a_cache_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make_program(tmp_path / "bin" / "npx")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    needs = find_needs(
        "one",
        ["npx", "server"],
        cache_dir="/c",
        ask=lambda argv: "https://packages.example:8443/npm/\n",
    )
    assert needs.hosts == ("packages.example:8443",)
    assert needs.sandbox == "read-only-filtered"
    assert needs.env["npm_config_cache"] == needs.cache == "/c/mcp_cache/one"
    assert "--yes" in needs.args
    unknown = find_needs("one", ["npx", "-y", "server"], cache_dir="/c", ask=lambda argv: "")
    assert unknown.hosts == ()
    assert "--host" in unknown.unknown


def test_uvx_needs_the_index_and_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_program(tmp_path / "bin" / "uvx")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    needs = find_needs("one", ["uvx", "server"], cache_dir="/c")
    assert needs.env["UV_CACHE_DIR"].startswith(needs.cache)
    assert needs.hosts or needs.unknown


def test_program_that_is_not_installed_is_a_mistake():
    with pytest.raises(UsageError, match="not installed"):
        find_needs("one", ["no-such-program-anywhere"], cache_dir="/c")


def test_program_is_looked_for_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    check_program("one", endpoint(command="sh"), str(tmp_path))
    check_program("one", endpoint(command="nothing", sandbox="full"), str(tmp_path))
    with pytest.raises(McpFailed, match="not installed"):
        check_program("one", endpoint(command="no-such-program-anywhere"), str(tmp_path))
    program = make_program(tmp_path / "tools" / "server")
    with pytest.raises(McpFailed, match="--readable"):
        check_program("one", endpoint(command=str(program)), str(tmp_path / "ws"))
    check_program(
        "one", endpoint(command=str(program), readable=[str(program.parent)]), str(tmp_path / "ws")
    )
    check_program("one", endpoint(command="./tools/server"), str(tmp_path))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(McpFailed, match="search path"):
        check_program("one", endpoint(command="server"), str(tmp_path / "ws"))


@pytest.mark.parametrize(
    ("said", "sandbox", "expected"),
    [
        ("getaddrinfo EAI_AGAIN packages.example", "read-only", "has no network"),
        ("Temporary failure in name resolution", "workspace-write", "has no network"),
        ("getaddrinfo ENOTFOUND a.test", "read-only-filtered", "has to use the proxy"),
        ("ModuleNotFoundError: No module named 'x'", "read-only", "`readable`"),
        ("it hurts", "read-only", ""),
        ("getaddrinfo EAI_AGAIN", "network", ""),
        ("getaddrinfo EAI_AGAIN", "full", ""),
    ],
)
def test_cause_is_named_where_the_sandbox_is_to_blame(said: str, sandbox: str, expected: str):
    found = find_cause(endpoint(sandbox=sandbox), said, ())
    assert expected in found
    assert bool(found) == bool(expected)


def test_what_the_proxy_refused_is_the_cause():
    refused = [EgressRefusal(target="a.test:443", because="the network is closed")]
    assert "a.test:443 (the network is closed)" in find_cause(
        endpoint(sandbox="filtered"), "", refused
    )


def test_grants_of_a_project_are_not_those_of_the_user(tmp_path: Path):
    book = GrantBook(tmp_path)
    own = endpoint(sandbox="filtered", hosts=["a.test"])
    other = own.find_in("/p/holdfast.toml", is_of_project=True)
    book.grant("one", own, ["b.test"])
    assert book.list_granted_hosts("one", own) == ("a.test", "b.test")
    assert book.list_granted_hosts("one", other) == ("a.test",)
    book.revoke("one", other, ["a.test"])
    assert book.list_granted_hosts("one", other) == ()
    assert GrantBook(tmp_path).list_granted_hosts("one", own) == ("a.test", "b.test")
    book.forget("one")
    assert (
        book.list_granted_hosts("one", own) == book.list_granted_hosts("one", other) == ("a.test",)
    )


@pytest.mark.parametrize(
    "said",
    [
        {"hosts": ["a.test"]},
        {"sandbox": "filtered", "hosts": ["http://a.test"]},
        {"sandbox": "filtered", "hosts": ["a.test:0"]},
        {"headers": {"X-A": "b"}},
        {"env": {"A B": "c"}},
        {"transport": "http", "command": None, "url": "https://a.test", "env": {"A": "b"}},
        {"transport": "http", "command": None, "url": "https://a.test", "headers": {"Host": "b"}},
    ],
    ids=range(7),
)
def test_endpoint_that_contradicts_itself_is_refused(said: dict[str, object]):
    with pytest.raises(ValueError, match="validation error"):
        endpoint(**said)


def test_git_and_github_can_both_be_servers():
    check_names({"git": endpoint(), "github": endpoint(), "my-git": endpoint()})
    with pytest.raises(ValueError, match="another name"):
        check_names({"my-git": endpoint(), "mygit": endpoint()})
