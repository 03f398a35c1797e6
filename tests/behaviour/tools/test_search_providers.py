"""Searches go to the provider that was configured, through the network rules."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from holdfast import AsyncClient
from holdfast.settings import load_settings
from holdfast.tools.builtin import SearchHit


class Echo:
    async def search(self, query, *, limit, http):
        hits = [SearchHit(title=query, url=f"https://example.org/{n}") for n in range(9)]
        return tuple(hits[:limit])


@pytest.mark.parametrize(("name", "way"), [("websearch", "web"), ("codesearch", "code")])
async def test_a_provider_of_ones_own_is_asked(tmp_path, name, way):
    async with AsyncClient(tmp_path) as client:
        missing = await client.tools.call(name, {"query": "x"})
        assert "tools.searxng_url" in missing.part.error
        await client.tools.use_search(**{way: Echo()})
        found = await client.tools.call(name, {"query": "a b", "limit": 2})
        assert found.part.output.splitlines()[0] == "1. a b"
        assert len(found.part.metadata["hits"]) == 2


async def test_a_searxng_server_of_the_settings_is_asked_if_the_network_rules_allow(tmp_path):
    asked = []

    async def answer(request):
        asked.append(dict(request.query))
        return web.json_response({"results": [{"url": "https://example.org", "title": "found"}]})

    app = web.Application()
    app.router.add_get("/search", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    policies = tmp_path / "policies"
    policies.mkdir()
    rules = {
        "allow_net": True,
        "allowed_hosts": ["127.0.0.1:*"],
        "private_networks": ["127.0.0.0/8"],
    }
    (policies / "network.yaml").write_text(json.dumps(rules))
    try:
        for allowed, state in ((True, "completed"), (False, "error")):
            chosen = {
                "tools.searxng_url": f"http://127.0.0.1:{port}",
                "policies.dir": str(policies),
                "network.allow_net": allowed,
            }
            settings = load_settings(overrides=chosen).settings
            async with AsyncClient(tmp_path / "state", settings=settings) as client:
                for name in ("websearch", "codesearch"):
                    called = await client.tools.call(name, {"query": "words"})
                    assert called.part.state == state, called.part.error
    finally:
        await runner.cleanup()
    assert [one["categories"] for one in asked] == ["general", "it"]
