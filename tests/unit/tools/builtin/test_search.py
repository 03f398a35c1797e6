import json

import pytest

from holdfast.errors import NetworkFailed, ToolError, ToolInputInvalid
from holdfast.tools.builtin.search import (
    NoSearch,
    SearchHit,
    SearxngSearch,
    make_codesearch_tool,
    make_websearch_tool,
)
from holdfast.tools.services import HttpResponse


class Fixed:
    def __init__(self, *hits):
        self.hits = hits

    async def search(self, query, *, limit, http):
        return self.hits[:limit]


class Server:
    def __init__(self, body, status=200):
        self.body, self.status, self.urls = body, status, []

    async def fetch(self, request):
        self.urls.append(request.url)
        return HttpResponse(url=request.url, status=self.status, headers={}, body=self.body)


@pytest.mark.parametrize("make", [make_websearch_tool, make_codesearch_tool])
async def test_hits_are_numbered(call, make):
    provider = Fixed(
        SearchHit(title="A", url="https://a", snippet="  one\n two "),
        SearchHit(title="B", url="https://b"),
    )
    result = await call(make(provider), query="x")
    assert result.output == "1. A\n   https://a\n   one two\n2. B\n   https://b"
    assert len(result.metadata["hits"]) == 2
    assert len((await call(make(provider), query="x", limit=1)).metadata["hits"]) == 1


async def test_nothing_found_is_said(call):
    assert "Nothing was found" in (await call(make_websearch_tool(Fixed()), query="x")).output


@pytest.mark.parametrize("make", [make_websearch_tool, make_codesearch_tool])
async def test_without_a_provider_it_says_what_to_configure(call, make):
    with pytest.raises(ToolError) as caught:
        await call(make(NoSearch("websearch")), query="x")
    assert "searxng_url" in str(caught.value)


async def test_searxng_is_asked_for_json():
    rest = [{"url": None, "title": "no page"}, {"url": "https://b", "title": None, "content": None}]
    answer = {"results": [{"url": "https://a", "title": "A", "content": "c"}, *rest]}
    server = Server(json.dumps(answer).encode())
    hits = await SearxngSearch("https://s.test/").search("a b&c", limit=5, http=server)
    assert hits == (
        SearchHit(title="A", url="https://a", snippet="c"),
        SearchHit(title="", url="https://b"),
    )
    assert server.urls == ["https://s.test/search?q=a+b%26c&format=json&categories=general"]


@pytest.mark.parametrize(("body", "status"), [(b"no json", 200), (b'"\xff"', 200), (b"{}", 500)])
async def test_searxng_that_answers_nonsense_is_a_failure(body, status):
    with pytest.raises(NetworkFailed):
        await SearxngSearch("https://s.test").search("a", limit=1, http=Server(body, status))


async def test_searxng_without_its_json_format_is_asked_about():
    with pytest.raises(NetworkFailed) as caught:
        await SearxngSearch("https://s.test").search("a", limit=1, http=Server(b"", 403))
    assert "JSON format" in str(caught.value)


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": "a", "limit": 0}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        make_websearch_tool(Fixed()).validate(arguments)
