import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from holdfast.errors import NetworkFailed, PermissionDenied
from holdfast.tools.network_rules import NetworkRules
from holdfast.tools.safe_http import SafeHttpClient
from holdfast.tools.services import HttpRequest

LOCAL = NetworkRules(
    allow_net=True,
    allowed_hosts=("*",),
    blocked_hosts=("evil.test",),
    private_networks=("127.0.0.0/8",),
)


@pytest.fixture
async def server():
    seen = []

    async def show(request):
        seen.append((request.method, request.host.partition(":")[0], dict(request.headers)))
        return web.Response(text="hello", headers={"X-A": "b"})

    async def redirect(request):
        raise web.HTTPFound(request.query["to"])

    async def loop(request):
        raise web.HTTPFound("/loop")

    async def large(request):
        return web.Response(body=b"x" * 1_000_000)

    async def hang(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()

    app = web.Application()
    app.add_routes(
        [
            web.route("*", "/", show),
            web.route("*", "/redirect", redirect),
            web.get("/loop", loop),
            web.get("/large", large),
            web.get("/hang", hang),
        ]
    )
    running = TestServer(app, host="127.0.0.1")
    await running.start_server()
    running.seen = seen
    yield running
    await running.close()


def client(rules=LOCAL, **names):
    asked = []

    async def lookup(host, port):
        asked.append(host)
        return names.get(host.replace(".", "_"), ["127.0.0.1"])

    made = SafeHttpClient(rules, lookup=lookup)
    made.asked = asked
    return made


async def test_allowed_page_is_fetched(server):
    response = await client().fetch(HttpRequest(url=f"http://a.test:{server.port}/"))
    assert (response.status, response.body, response.headers["x-a"]) == (200, b"hello", "b")
    assert response.media_type == "text/plain"


async def test_name_is_resolved_once_per_connection(server):
    one = client()
    await one.fetch(HttpRequest(url=f"http://a.test:{server.port}/"))
    assert one.asked == ["a.test"]


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["::ffff:10.0.0.1"]]
)
async def test_name_with_any_private_address_is_refused(server, addresses):
    with pytest.raises(PermissionDenied):
        await client(a_test=addresses).fetch(HttpRequest(url=f"http://a.test:{server.port}/"))
    assert server.seen == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[::1]", "169.254.169.254", "[::ffff:10.0.0.1]"])
async def test_literal_address_is_checked_too(host):
    with pytest.raises(PermissionDenied):
        await client().fetch(HttpRequest(url=f"http://{host}/"))


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "localhost", "127.1"])
async def test_disguised_loopback_is_not_reached(server, host):
    rules = NetworkRules(allow_net=True, allowed_hosts=("*",))
    with pytest.raises((PermissionDenied, NetworkFailed)):
        await SafeHttpClient(rules).fetch(HttpRequest(url=f"http://{host}:{server.port}/"))
    assert server.seen == []


async def test_redirect_is_checked_again(server):
    url = f"http://a.test:{server.port}/redirect?to="
    for target in ("http://evil.test/", "http://10.0.0.1/", "http://u:p@b.test/"):
        with pytest.raises(PermissionDenied):
            await client().fetch(HttpRequest(url=url + target))
    with pytest.raises(NetworkFailed):
        await client().fetch(HttpRequest(url=url + "file:///etc/passwd"))
    assert server.seen == []


async def test_credentials_stay_with_their_host(server):
    headers = {"Authorization": "secret", "Cookie": "c", "X-Other": "o"}
    for host, is_kept in (("a.test", True), ("b.test", False)):
        url = f"http://a.test:{server.port}/redirect?to=http://{host}:{server.port}/"
        await client().fetch(HttpRequest(url=url, headers=headers))
        _, _, seen = server.seen[-1]
        assert ("Authorization" in seen, "Cookie" in seen) == (is_kept, is_kept)
        assert seen["X-Other"] == "o"


async def test_post_becomes_get_after_a_redirect(server):
    url = f"http://a.test:{server.port}/redirect?to=/"
    await client().fetch(HttpRequest(url=url, method="POST", body=b"x"))
    assert server.seen[-1][0] == "GET"


async def test_endless_redirects_end(server):
    with pytest.raises(NetworkFailed):
        await client().fetch(HttpRequest(url=f"http://a.test:{server.port}/loop"))


async def test_size_and_time_are_bounded(server):
    url = f"http://a.test:{server.port}"
    response = await client().fetch(HttpRequest(url=f"{url}/large", max_bytes=1_000))
    assert len(response.body) == 1_000
    assert response.is_truncated
    with pytest.raises(NetworkFailed) as caught:
        await client().fetch(HttpRequest(url=f"{url}/hang", timeout_s=0.2))
    assert caught.value.code == "network.failed"


@pytest.mark.parametrize("url", ["ftp://a.test/", "http://", "file:///etc/passwd", "http://[bad"])
async def test_url_that_cannot_be_fetched_is_refused(url):
    with pytest.raises(NetworkFailed):
        await client().fetch(HttpRequest(url=url))


async def test_closed_network_refuses_before_resolving():
    closed = client(NetworkRules())
    with pytest.raises(PermissionDenied):
        await closed.fetch(HttpRequest(url="http://a.test/"))
    assert closed.asked == []


async def test_nobody_listening_is_a_failure():
    with pytest.raises(NetworkFailed):
        await client().fetch(HttpRequest(url="http://a.test:1/"))
