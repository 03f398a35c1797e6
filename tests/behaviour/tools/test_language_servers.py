"""A language server that the settings name is started by the `lsp` tool."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast import AsyncClient
from holdfast.settings import load_settings

ROTE = Path(__file__).parents[2] / "unit" / "tools" / "builtin" / "lsp_server.py"


async def test_a_server_of_ones_own_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a.own").write_text("def alpha(x):\n    return x\n")
    said = {"command": sys.executable, "args": [str(ROTE)], "endings": {".own": "own"}}
    chosen = {"workspace": str(tmp_path), "tools.language_servers": {"rote": said}}
    settings = load_settings(overrides=chosen).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        wanted = {"operation": "hover", "file_path": "a.own", "line": 1, "symbol": "alpha"}
        part = (await client.tools.call("lsp", wanted)).part
        assert part.state == "completed", part.error
        assert part.metadata["server"] == "rote"
