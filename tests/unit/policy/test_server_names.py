"""Rules about the tools of one MCP server do not speak of another that begins alike."""

from __future__ import annotations

import pytest

from holdfast.policy import name_matches


@pytest.mark.parametrize(
    ("pattern", "name", "is_meant"),
    [
        ("mcp__git__*", "mcp__git__status", True),
        ("mcp__git__*", "mcp__github__create_issue", False),
        ("mcp__github__*", "mcp__git__status", False),
        ("mcp__git__status", "mcp__git__status", True),
        ("mcp__git__hub_create", "mcp__github__create", False),
        ("MCP__Git__*", "mcp__git__status", True),
        ("mcp__my-git__*", "mcp__my-git__status", True),
        ("mcp__my__*", "mcp__my-git__status", False),
        ("mcp__git*", "mcp__github__create", True),
        ("mcp__*__status", "mcp__git__status", True),
        ("mcp__*__status", "mcp__github__create", False),
        ("mcp_git_*", "mcp__git__status", True),
        ("mcp_git_*", "mcp__github__create", False),
        ("mcp_my_*", "mcp__my-git__status", True),
        ("mcp_github_create_*", "mcp__github__create_issue", True),
        ("mcp_*", "mcp__github__create", True),
        ("mcp*", "mcp__github__create", True),
        ("*", "mcp__github__create", True),
        ("*create", "mcp__github__create", True),
        ("m_*", "mcp__github__create", True),
        ("mcpgitstatus", "mcp__git__status", True),
        ("bash", "mcp__git__status", False),
        ("mcp__git__*", "bash", False),
    ],
)
def test_rule_means_its_own_server(pattern: str, name: str, is_meant: bool):
    assert name_matches(pattern, name) is is_meant
