import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.html_markdown import convert_html_to_markdown, find_html_title


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<h1>Title</h1><p>One <b>two</b>\n three</p>", "# Title\n\nOne **two** three"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n  - b\n- c"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ('<a href="/x">go</a>', "[go](https://h.test/x)"),
        ('<a href="javascript:evil()">go</a>', "go"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ("<p>use <code>x = 1</code></p>", "use `x = 1`"),
        ("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n>\n> b"),
        (
            "<table><tr><th>a</th><th>b|c</th></tr><tr><td>1</td><td>2</td></tr></table>",
            "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |",
        ),
        ('<img src="i.png" alt="A  picture">', "![A picture](https://h.test/i.png)"),
        ("<script>evil()</script><style>x</style>text", "text"),
        ("a<br>b<hr>c", "a\nb\n\n---\n\nc"),
        ("&lt;b&gt; &amp; &eacute;", "<b> & é"),
        ("<p>never closed <b>at all", "never closed **at all"),
    ],
)
def test_pages_become_markdown(html, markdown):
    assert convert_html_to_markdown(html, "https://h.test/") == markdown


def test_title_is_found():
    assert find_html_title("<head><TITLE>\n A  b </TITLE>") == "A b"
    assert find_html_title("<p>none") == ""


TAGS = st.sampled_from(
    "a b ul ol li p table tr td th pre blockquote code script h1 br img div".split()
)


@given(st.lists(st.one_of(TAGS.map("<{}>".format), TAGS.map("</{}>".format), st.text(max_size=5))))
def test_broken_markup_never_fails(pieces):
    convert_html_to_markdown("".join(pieces))
