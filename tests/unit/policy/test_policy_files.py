"""Policy files: strict, safe to read, every mistake told with its line."""

import os

import pytest

from holdfast.errors import ConfigError, PolicyInvalid
from holdfast.policy import CallRequest, decide, load_policies
from holdfast.policy.bundle import request_of

TOOLS = """\
defaults:
  allowed_commands: [git status, git diff, ls, "pytest"]
  max_tool_calls: 50
  max_tokens: 200000
agents:
  executor:
    allowed_tools: [read, write, bash, mcp_*]
    max_tool_calls: 100
  reviewer:
    allowed_tools: [read, grep]
    allowed_commands: []
  builder:
    allowed_commands: ["*"]
    denied_tools: [task]
    rules:
      - {permission: write, pattern: "generated/**", action: ask}
budgets:
  max_tool_calls: 500
  max_tokens: 1000000
  max_cost_usd: 5
  max_wall_s: 3600.5
rules:
  - {permission: externaldirectory, action: deny}
tests:
  - {tool: bash, agent: executor, command: git status -s, expect: allow}
  - {tool: bash, agent: executor, command: rm -rf x, expect: deny}
  - {tool: websearch, agent: executor, expect: deny}
"""
NETWORK = """\
allow_net: true
allowed_hosts: ["*.example.org", api.test]
blocked_hosts: [bad.example.org]
rate_limits:
  default_per_minute: 30
  hosts:
    api.test: 5
tests:
  - {tool: webfetch, host: www.example.org, expect: allow}
"""
PATHS = """\
allowed_globs: ["src/**", "**/*.md"]
blocked_globs: ["**/.git/**", secrets]
tests:
  - {tool: read, path: src/a.py, expect: allow}
  - {tool: read, path: lib/a.py, expect: deny}
"""


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "policies"
    place.mkdir()
    for name, text in (("tools", TOOLS), ("network", NETWORK), ("paths", PATHS)):
        (place / f"{name}.yaml").write_text(text)
    return place


def verdict(bundle, tool, agent="executor", kind="none", target="*"):
    request = CallRequest(permission=tool, targets=(target,), target_kind=kind, default="allow")
    return decide(request, bundle.find_ceiling(agent)).action


def test_files_of_the_specification_are_read(folder):
    bundle = load_policies(folder, is_net_allowed=True)
    assert bundle.list_command_prefixes("executor") == (
        ("git", "status"),
        ("git", "diff"),
        ("ls",),
        ("pytest",),
    )
    assert bundle.list_command_prefixes("reviewer") == ()
    assert bundle.list_command_prefixes("builder") == ((),)
    assert bundle.compute_limits("executor").max_tool_calls == 100
    assert bundle.compute_limits("executor").max_tokens == 200_000
    assert bundle.compute_limits("nobody").max_tool_calls == 50
    assert bundle.budgets.max_cost_usd == 5.0
    assert bundle.network_rules.find_rate("api.test") == 5
    assert bundle.network_rules.find_rate("www.example.org") == 30
    assert all(result.is_met for result in bundle.run_tests())
    assert len(bundle.run_tests()) == 6


@pytest.mark.parametrize(
    ("tool", "agent", "kind", "target", "expected"),
    [
        ("read", "executor", "path", "src/a.py", "allow"),
        ("read", "executor", "path", "README.md", "allow"),
        ("read", "executor", "path", "setup.cfg", "deny"),
        ("read", "executor", "path", "src/.git/config", "deny"),
        ("read", "executor", "path", "secrets", "deny"),
        ("read", "executor", "path", "secrets/notes.md", "deny"),
        ("grep", "reviewer", "path", ".", "allow"),
        ("grep", "reviewer", "path", "secrets", "deny"),
        ("write", "reviewer", "path", "src/a.py", "deny"),
        ("write", "builder", "path", "src/a.py", "allow"),
        ("mcp_server_tool", "executor", "none", "*", "allow"),
        ("task", "builder", "none", "*", "deny"),
        ("task", "nobody", "none", "*", "allow"),
        ("external_directory", "builder", "path", "/data", "deny"),
        ("bash", "executor", "command", "git status", "allow"),
        ("bash", "executor", "command", "git push", "deny"),
        ("bash", "executor", "command", "git status; rm x", "deny"),
        ("bash", "executor", "command", "lsof", "deny"),
        ("bash", "builder", "command", "rm -rf x; y", "allow"),
        ("webfetch", "builder", "host", "api.test", "allow"),
        ("webfetch", "builder", "host", "bad.example.org", "deny"),
        ("webfetch", "builder", "host", "evil.test", "deny"),
        ("any_mcp_tool", "builder", "host", "evil.test", "deny"),
        ("doom_loop", "executor", "none", "*", "allow"),
    ],
)
def test_ceiling_says_what_the_files_say(folder, tool, agent, kind, target, expected):
    bundle = load_policies(folder, is_net_allowed=True)
    assert verdict(bundle, tool, agent, kind, target) == expected


def test_list_never_lifts_a_rule_and_a_rule_never_lifts_a_list(folder):
    bundle = load_policies(folder, is_net_allowed=True)
    assert verdict(bundle, "write", "builder", "path", "src/generated/x") == "allow"
    (folder / "tools.yaml").write_text(
        "rules:\n  - {permission: write, action: deny}\n  - {permission: read, action: allow}\n"
    )
    bundle = load_policies(folder)
    assert verdict(bundle, "write", "builder", "path", "src/a") == "deny"
    assert verdict(bundle, "read", "builder", "path", "lib/a") == "deny"


@pytest.mark.parametrize(
    ("environment", "file", "is_open"),
    [(False, "true", False), (True, "true", True), (True, "false", False), (False, "false", False)],
)
def test_environment_closes_the_network_but_never_opens_it(folder, environment, file, is_open):
    (folder / "network.yaml").write_text(f"allow_net: {file}\nallowed_hosts: ['*']\n")
    bundle = load_policies(folder, is_net_allowed=environment)
    assert bundle.network_rules.allow_net == is_open
    found = verdict(bundle, "webfetch", kind="host", target="example.org", agent="x")
    assert found == ("allow" if is_open else "deny")


def test_without_files_only_the_network_is_closed(tmp_path):
    bundle = load_policies(tmp_path / "nothing", is_net_allowed=True)
    assert bundle.files == ()
    assert verdict(bundle, "write", kind="path", target="a") == "allow"
    assert verdict(bundle, "webfetch", kind="host", target="example.org") == "deny"


def test_version_is_what_the_policies_mean(folder):
    before = load_policies(folder).version
    (folder / "paths.yaml").write_text("# a comment\n" + PATHS.partition("tests:")[0])
    assert load_policies(folder).version == before
    assert load_policies(folder, is_net_allowed=True).version != before
    (folder / "paths.yaml").write_text(PATHS.replace("secrets", "secret"))
    assert load_policies(folder).version != before


def told(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    with pytest.raises(PolicyInvalid) as caught:
        load_policies(folder)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.code == "policy.invalid"
    return [str(line).removeprefix(f"{folder}/") for line in caught.value.context["mistakes"]]


def test_all_mistakes_are_told_at_once_with_file_and_line(folder):
    mistakes = told(
        folder,
        tools="defaults:\n  max_tokens: many\n  alowed_commands: [ls]\nagent: {}\n",
        network="allow_net: maybe\nallowed_hosts:\n  - example.org\n  - 'http://x/'\n",
        paths="allowed_globs:\n  - 'a[b'\n  - /etc/**\n  - ../x\n",
    )
    places = [mistake.split(" ")[0] for mistake in mistakes]
    assert places == [
        "tools.yaml:2:",
        "tools.yaml:3:",
        "tools.yaml:4:",
        "network.yaml:1:",
        "network.yaml:4:",
        "paths.yaml:2:",
        "paths.yaml:3:",
        "paths.yaml:4:",
    ]
    assert "did you mean 'allowed_commands'?" in mistakes[1]
    assert "did you mean 'agents'?" in mistakes[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: &x [1]\nb: *x\n", 1),
        ("defaults: !!python/object/apply:os.system ['true']\n", 1),
        ("agents: !include x\n", 1),
        ("agents: {}\n---\nagents: {}\n", 2),
        ("agents: {}\nbudgets: {}\nagents: {}\n", 3),
        ("agents:\n  a: {max_tokens: 1}\n  a: {max_tokens: 2}\n", 3),
        ("agents:\n  <<: {a: {}}\n", 2),
        ("agents: [\n", 2),
        ("agents:\n\t- x\n", 2),
        ("[" * 5_000, 1),
        ("? [a]\n: b\n", 1),
        ("- a\n", 1),
        ("just text\n", 1),
        ("agents:\n  a: 1\n", 2),
        ("agents:\n  one: {}\n  One: {}\n", 1),
        ("agents:\n  a:\n    allowed_tools: read\n", 3),
        ("agents:\n  a:\n    allowed_tools: [read, yes]\n", 3),
        ("budgets:\n  max_cost_usd: .nan\n", 2),
        ("budgets:\n  max_cost_usd: -1\n", 2),
        ("budgets:\n  max_tool_calls: 1.5\n", 2),
        ("budgets:\n  max_tool_calls: '5'\n", 2),
        ("budgets:\n  max_tool_calls: 99999999999999999999999\n", 2),
        ("defaults:\n  allowed_commands: ['git; rm']\n", 2),
        ("defaults:\n  allowed_commands: ['git *']\n", 2),
        ("defaults:\n  allowed_commands: ['']\n", 2),
        ("tests:\n  - {tool: a, path: b, host: c, expect: deny}\n", 2),
        ("tests:\n  - {tool: a, expect: maybe}\n", 2),
        ("rules:\n  - {permission: a, action: allow, extra: 1}\n", 2),
        ("rules:\n  - {permission: a b, action: allow}\n", 2),
        ('defaults:\n  allowed_commands: ["git \'x"]\n', 2),
        ("budgets:\n  max_tokens: 0b2\n", 2),
        ("agents:\n  a: {allowed_tool: [x], b: {c: 1}}\n", 2),
        ("\x00", 1),
    ],
)
def test_file_that_cannot_be_meant_is_refused_with_its_line(folder, text, line):
    mistakes = told(folder, tools=text)
    assert mistakes[0].startswith(f"tools.yaml:{line}:"), mistakes


def test_bomb_of_aliases_and_oversized_file_are_refused(folder):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert told(folder, tools=bomb)
    assert told(folder, tools="# " + "x" * 70_000)
    assert told(folder, tools=f"agents: {{{', '.join(f'a{n}: {{}}' for n in range(7_000))}}}")


def test_misspelt_file_is_not_silently_ignored(folder):
    (folder / "path.yaml").write_text("blocked_globs: ['**']\n")
    assert told(folder) == ["path.yaml:1: is no policy file; did you mean paths.yaml?"]


def test_pipe_in_place_of_a_file_does_not_hang(folder, tmp_path):
    (folder / "tools.yaml").unlink()
    os.mkfifo(folder / "tools.yaml")
    assert told(folder) == ["tools.yaml:1: is not a regular file"]


def test_test_that_is_not_met_says_what_was_found(folder):
    (folder / "paths.yaml").write_text("tests:\n  - {tool: read, path: a, expect: deny}\n")
    (result,) = [one for one in load_policies(folder).run_tests() if one.file == "paths.yaml"]
    assert (result.is_met, result.line, result.found) == (False, 2, "allow")


def test_request_of_a_test_knows_its_kind(folder):
    bundle = load_policies(folder)
    kinds = {request_of(one).target_kind for _, _, one in bundle.list_expectations()}
    assert kinds == {"command", "none", "host", "path"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("allowed_hosts: [exa mple]\n", 1),
        ("allowed_hosts:\n  - '.'\n", 2),
        ("allowed_hosts: ['a:99999']\n", 1),
        ("allowed_hosts: ['2130706433']\n", 1),
        ("private_networks: ['10.0.0.1/8']\n", 1),
        ("rate_limits: {default_per_minute: 0}\n", 1),
        ("rate_limits:\n  hosts:\n    'a b': 5\n", 3),
        ("rate_limits:\n  hosts:\n    a.test: many\n", 3),
    ],
)
def test_network_file_that_cannot_be_meant_is_refused(folder, text, line):
    mistakes = told(folder, network=text)
    assert mistakes[0].startswith(f"network.yaml:{line}:"), mistakes


def test_date_is_read_as_it_was_written(folder):
    (folder / "paths.yaml").write_text("blocked_globs: [2026-11-15]\n")
    assert load_policies(folder).paths.blocked_globs == ["2026-11-15"]


def test_ceilings_of_many_agents_do_not_pile_up(folder):
    bundle = load_policies(folder)
    for number in range(600):
        bundle.find_ceiling(f"agent{number}")
    assert len(bundle._ceilings) <= 256
