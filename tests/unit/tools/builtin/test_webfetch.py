import msgspec
import pytest

from holdfast.errors import PermissionDenied, TellModel, ToolInputInvalid
from holdfast.tools.builtin.webfetch import webfetch
from holdfast.tools.services import HttpResponse


class Pages:
    def __init__(self, body, content_type, *, status=200, is_truncated=False):
        self.requests = []
        self.response = HttpResponse(
            url="https://h.test/page",
            status=status,
            headers={"content-type": content_type},
            body=body,
            is_truncated=is_truncated,
        )

    async def fetch(self, request):
        self.requests.append(request)
        return self.response


@pytest.fixture
def fetch(context):
    async def go(pages, **arguments):
        using = msgspec.structs.replace(context, http=pages)
        values = webfetch.validate({"url": "https://h.test/page", **arguments})
        return await webfetch.call(values, using)

    return go


PAGE = b"<title>The page</title><h1>Hi</h1><a href='/x'>y</a>"


async def test_page_becomes_markdown(fetch):
    result = await fetch(Pages(PAGE, "text/html; charset=utf-8"))
    assert result.output == "# Hi\n\n[y](https://h.test/x)"
    assert result.title == "The page"
    assert result.metadata["media_type"] == "text/html"


async def test_html_can_be_kept(fetch):
    assert (await fetch(Pages(PAGE, "text/html"), format="html")).output == PAGE.decode()


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grün".encode(), "text/plain", "grün"),
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("grün".encode("latin-1"), "text/plain", "grün"),
        (b'<meta charset="latin-1">gr\xfcn', "text/html", "grün"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"x", "text/plain; charset=nonsense", "x"),
        (b"a" * 99, "text/plain; charset=punycode", "a" * 99),
        (b"\\x41+AGE-", "text/plain; charset=unicode-escape", "\\x41+AGE-"),
        (b"\\x41+AGE-", "text/plain; charset=UTF7", "\\x41+AGE-"),
        (b"", "text/plain", "(the page is empty)"),
    ],
)
async def test_text_is_decoded(fetch, body, content_type, text):
    assert (await fetch(Pages(body, content_type))).output == text


async def test_image_is_attached(fetch):
    result = await fetch(Pages(b"png", "image/png"))
    assert result.attachments[0].data == b"png"


async def test_image_that_is_too_large_is_said_to_be_so(fetch):
    with pytest.raises(TellModel) as raised:
        await fetch(Pages(b"png", "image/png", is_truncated=True))
    assert "more than 5 MB" in str(raised.value)


@pytest.mark.parametrize("content_type", ["application/pdf", "application/octet-stream", "video/x"])
async def test_other_types_are_refused(fetch, content_type):
    with pytest.raises(TellModel):
        await fetch(Pages(b"x", content_type))


async def test_long_page_is_cut_and_said_to_be(fetch):
    result = await fetch(Pages(b"x" * 300_000, "text/plain", is_truncated=True))
    assert result.metadata["is_truncated"]
    assert len(result.output) < 201_000


async def test_error_status_is_told(fetch):
    with pytest.raises(TellModel) as caught:
        await fetch(Pages(b"", "text/plain", status=404))
    assert "404" in caught.value.text


async def test_network_is_closed_by_default(call):
    with pytest.raises(PermissionDenied):
        await call(webfetch, url="https://h.test/")


@pytest.mark.parametrize("url", ["ftp://x", "x", "", 1])
def test_wrong_arguments_are_refused(url):
    with pytest.raises(ToolInputInvalid):
        webfetch.validate({"url": url})


URLS = (
    "https://example.org/x",
    "https://example.org:443/x",
    "http://example.org/",
    "http://[::1]:8080/",
    "https://[::1]/",
    "nothing",
)


def test_target_is_the_host(context):
    targets = webfetch.targets({"url": "https://user@Example.org:8/x"}, context.workspace)
    assert targets == ("example.org:8",)
    usual = [webfetch.targets({"url": url}, context.workspace)[0] for url in URLS]
    assert usual == ["example.org", "example.org", "example.org:80", "[::1]:8080", "::1", ""]
