from __future__ import annotations

import pytest

from holdfast.providers.offline.facts import WorkspaceFacts, quote, read_facts

PACKAGE = (
    '{"name": "tea", "description": "Pour", "scripts": {"test": "jest", "dev": "vite"},'
    ' "dependencies": {"react": "1"}}'
)


@pytest.mark.parametrize(
    ("path", "text", "command"),
    [
        ("package.json", PACKAGE, ("dev", "npm run dev")),
        ("package.json", PACKAGE, ("test", "npm test")),
        ("Cargo.toml", '[package]\nname = "tea"\n', ("test", "cargo test")),
        ("Makefile", "CC := gcc\nbuild: all\n\tcc\n", ("build", "make build")),
        ("justfile", "lint:\n  ruff\n", ("lint", "just lint")),
        ("go.mod", "module example.com/tea\n", ("test", "go test ./...")),
        ("CMakeLists.txt", "", ("build", "cmake -B build && cmake --build build")),
        ("pom.xml", "<project/>", ("test", "mvn test")),
        ("build.gradle.kts", "", ("test", "gradle test")),
        ("tox.ini", "", ("test", "tox")),
    ],
)
def test_project_files_say_how_to_build_and_test(
    path: str, text: str, command: tuple[str, str]
) -> None:
    assert command in read_facts(f"sub/{path}", text).commands


def test_names_descriptions_and_needs_are_read() -> None:
    tea = read_facts("package.json", PACKAGE)
    assert (tea.name, tea.about, tea.parts) == ("tea", "Pour", ("depends on react",))
    assert read_facts("go.mod", "module example.com/tea\n").name == "example.com/tea"


def test_a_file_whose_end_is_missing_is_read_as_far_as_it_goes() -> None:
    cut = '     1\t[project]\n     2\tname = "tea"\n     3\tdependencies = ["a",'
    assert read_facts("pyproject.toml", cut).name == "tea"


@pytest.mark.parametrize(
    ("path", "text"),
    [("package.json", "{"), ("pyproject.toml", "]["), ("notes.txt", "x"), ("package.json", "[]")],
)
def test_what_cannot_be_read_says_nothing(path: str, text: str) -> None:
    found = read_facts(path, text)
    assert (found.name, found.about) == (WorkspaceFacts().name, WorkspaceFacts().about)


def test_a_quote_is_plain_and_short() -> None:
    assert quote("a [b](http://x) ![c](http://y) <b>d</b>\n e") == "a b c d e"
    assert len(quote("x" * 1000, 50)) == 50


def test_the_first_shell_block_of_a_readme_says_how_to_use_it() -> None:
    block = "```sh\n# first\n$ make all     # builds it\nmake test\n```\n"
    page = f"# Kelp\n\nGrows.\n\n{block}\n```sh\nrm x\n```\n"
    assert read_facts("README.md", page).commands == (
        ("builds it", "make all"),
        ("as the README says", "make test"),
    )
    assert read_facts("README.md", "# Kelp\n\n```python\nprint()\n```\n").commands == ()
