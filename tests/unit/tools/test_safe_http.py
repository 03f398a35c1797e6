import asyncio
import gzip
import zlib
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from holdfast.errors import NetworkFailed, PermissionDenied, RateLimitError, UsageError
from holdfast.policy import NetworkRules
from holdfast.testing import FakeClock
from holdfast.tools.safe_http import SafeHttpClient
from holdfast.tools.services import HttpRequest

CORPUS = yaml.safe_load((Path(__file__).parents[2] / "corpora/ssrf.yaml").read_text())
LOCAL = NetworkRules(
    allow_net=True,
    allowed_hosts=("*:*",),
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

    async def keep(request):
        raise web.HTTPTemporaryRedirect(request.query["to"])

    async def packed(request):
        encoding = request.query["as"]
        pieces = {
            "gzip": gzip.compress(b"x" * 10_000_000),
            "deflate": zlib.compress(b"x" * 10_000_000),
            "bare": zlib.compress(b"hello")[2:-4],
            "twice": gzip.compress(b"hel") + gzip.compress(b"lo"),
            "broken": b"no gzip",
            "cut": gzip.compress(b"hello")[:-8],
            "br": b"hello",
        }
        names = {"bare": "deflate", "twice": "gzip", "broken": "gzip", "cut": "gzip"}
        headers = {"Content-Encoding": names.get(encoding, encoding)}
        return web.Response(body=pieces[encoding], headers=headers)

    async def many_headers(request):
        return web.Response(text="x", headers={f"X-{n}": "y" for n in range(500)})

    async def cookie(request):
        response = web.HTTPFound("/")
        response.set_cookie("a", "b")
        raise response

    app = web.Application()
    app.add_routes(
        [
            web.route("*", "/", show),
            web.route("*", "/redirect", redirect),
            web.get("/loop", loop),
            web.get("/large", large),
            web.get("/hang", hang),
            web.route("*", "/keep", keep),
            web.get("/packed", packed),
            web.get("/headers", many_headers),
            web.get("/cookie", cookie),
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
    headers = {"Authorization": "secret", "Cookie": "c", "X-Other": "o", "Accept": "text/html"}
    for host, is_kept in (("a.test", True), ("b.test", False)):
        url = f"http://a.test:{server.port}/redirect?to=http://{host}:{server.port}/"
        await client().fetch(HttpRequest(url=url, headers=headers))
        _, _, seen = server.seen[-1]
        # Any header that is not known to be harmless may carry a key.
        kept = ("Authorization" in seen, "Cookie" in seen, "X-Other" in seen)
        assert kept == (is_kept, is_kept, is_kept)
        assert seen["Accept"] == "text/html"


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
        await client().fetch(HttpRequest(url="http://a.test:1025/"))


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case['url']} {case.get('addresses')}")
async def test_corpus_of_forged_requests(case):
    async def lookup(host, port):
        return case.get("addresses", ["93.184.216.34"])

    rules = NetworkRules(allow_net=True, allowed_hosts=("*",))
    one = SafeHttpClient(rules, lookup=lookup)
    if case["verdict"] == "reach":
        assert (await one.check(case["url"])).addresses
    else:
        with pytest.raises((PermissionDenied, NetworkFailed)):
            await one.check(case["url"])
        with pytest.raises((PermissionDenied, NetworkFailed)):
            await one.fetch(HttpRequest(url=case["url"], timeout_s=5))


async def test_answer_of_a_second_lookup_is_never_used(server):
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def lookup(host, port):
        return answers.pop(0)

    response = await SafeHttpClient(LOCAL, lookup=lookup).fetch(
        HttpRequest(url=f"http://a.test:{server.port}/")
    )
    assert response.status == 200
    assert answers == [["10.0.0.1"]]
    assert server.seen[0][1] == "a.test"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_packed_body_cannot_grow_beyond_the_limit(server, encoding):
    url = f"http://a.test:{server.port}/packed?as={encoding}"
    response = await client().fetch(HttpRequest(url=url, max_bytes=50_000))
    assert response.body == b"x" * 50_000
    assert response.is_truncated


@pytest.mark.parametrize("encoding", ["bare", "twice"])
async def test_packed_body_is_unpacked(server, encoding):
    url = f"http://a.test:{server.port}/packed?as={encoding}"
    response = await client().fetch(HttpRequest(url=url))
    assert (response.body, response.is_truncated) == (b"hello", False)


async def test_packed_body_that_breaks_off_is_not_taken_for_a_whole_one(server):
    url = f"http://a.test:{server.port}/packed?as=cut"
    response = await client().fetch(HttpRequest(url=url))
    assert (response.body, response.is_truncated) == (b"hello", True)


@pytest.mark.parametrize("path", ["packed?as=br", "packed?as=broken", "headers"])
async def test_strange_answer_is_a_failure(server, path):
    with pytest.raises(NetworkFailed):
        await client().fetch(HttpRequest(url=f"http://a.test:{server.port}/{path}"))


async def test_body_of_just_the_limit_is_whole(server):
    url = f"http://a.test:{server.port}/large"
    response = await client().fetch(HttpRequest(url=url, max_bytes=1_000_000))
    assert (len(response.body), response.is_truncated) == (1_000_000, False)


async def test_body_is_not_sent_to_another_host(server):
    url = f"http://a.test:{server.port}/keep?to="
    request = HttpRequest(url=url + "/", method="POST", body=b"x")
    assert (await client().fetch(request)).status == 200
    other = HttpRequest(url=f"{url}http://b.test:{server.port}/", method="POST", body=b"x")
    with pytest.raises(NetworkFailed):
        await client().fetch(other)
    assert len(server.seen) == 1


async def test_cookies_are_neither_kept_nor_sent(server):
    one = client()
    await one.fetch(HttpRequest(url=f"http://a.test:{server.port}/cookie"))
    await one.fetch(HttpRequest(url=f"http://a.test:{server.port}/"))
    assert all("Cookie" not in seen for _, _, seen in server.seen)


async def test_proxies_of_the_environment_are_ignored(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await client().fetch(HttpRequest(url=f"http://a.test:{server.port}/"))).status == 200


@pytest.mark.parametrize("name", ["Host", "content-length", "Proxy-Authorization", "Connection"])
async def test_header_of_the_connection_cannot_be_set(name):
    with pytest.raises(UsageError):
        await client().fetch(HttpRequest(url="http://a.test/", headers={name: "x"}))


async def test_header_cannot_smuggle_another_one(server):
    request = HttpRequest(url=f"http://a.test:{server.port}/", headers={"X-A": "b\r\nX-C: d"})
    with pytest.raises(NetworkFailed):
        await client().fetch(request)
    assert server.seen == []


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nX: y"])
async def test_method_that_is_not_for_tools_is_refused(method):
    with pytest.raises(UsageError):
        await client().fetch(HttpRequest(url="http://a.test/", method=method))


async def test_host_is_asked_no_more_often_than_its_rate(server):
    clock = FakeClock()
    rules = NetworkRules(
        allow_net=True,
        allowed_hosts=("*:*",),
        private_networks=("127.0.0.0/8",),
        per_minute=2,
        host_rates=(("*.fast.test", 100),),
    )

    async def lookup(host, port):
        return ["127.0.0.1"]

    one = SafeHttpClient(rules, lookup=lookup, clock=clock)
    request = HttpRequest(url=f"http://slow.test:{server.port}/")
    await one.fetch(request)
    await one.fetch(request)
    with pytest.raises(RateLimitError) as caught:
        await one.fetch(request)
    assert caught.value.context["retry_after_s"] == 60.0
    # Another spelling of the host is the same host; another host has its own count.
    with pytest.raises(RateLimitError):
        await one.fetch(HttpRequest(url=f"http://SLOW.test.:{server.port}/"))
    for _ in range(5):
        await one.fetch(HttpRequest(url=f"http://a.fast.test:{server.port}/"))
    clock.advance(60.1)
    assert (await one.fetch(request)).status == 200


async def test_new_rules_hold_from_the_next_request_on(server):
    rules = [LOCAL]
    one = SafeHttpClient(lambda: rules[0], lookup=client()._lookup)
    request = HttpRequest(url=f"http://a.test:{server.port}/")
    assert (await one.fetch(request)).status == 200
    rules[0] = NetworkRules()
    with pytest.raises(PermissionDenied):
        await one.fetch(request)
