"""Load the policy files: all mistakes at once, each with its file and line."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from holdfast.errors import PolicyInvalid
from holdfast.policy.bundle import PolicyBundle
from holdfast.policy.files import NetworkFile, PathsFile, ToolsFile
from holdfast.policy.yaml_file import Place, YamlData, parse_yaml
from holdfast.settings import UnreadableFile, read_text

F = TypeVar("F", bound=BaseModel)
FILES = ("tools.yaml", "network.yaml", "paths.yaml")


def load_policies(directory: Path, *, is_net_allowed: bool = False) -> PolicyBundle:
    """Read and check the policies in a directory.

    A file that is not there says nothing: no limits on tools and paths, and no network.

    Raises:
        PolicyInvalid: anything is wrong in any file; `mistakes` lists everything.
    """
    loader = _Loader(directory)
    bundle = PolicyBundle(
        tools=loader.load("tools.yaml", ToolsFile),
        network=loader.load("network.yaml", NetworkFile),
        paths=loader.load("paths.yaml", PathsFile),
        is_net_allowed=is_net_allowed,
        files=tuple(loader.files),
        lines=loader.test_lines,
    )
    loader.refuse_strays()
    if loader.mistakes:
        lines = "\n".join(f"  - {mistake}" for mistake in loader.mistakes)
        raise PolicyInvalid(detail=lines, mistakes=list(loader.mistakes))
    return bundle


class _Loader:
    """Collects what the files say and everything that is wrong with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files: list[str] = []
        self.mistakes: list[str] = []
        self.test_lines: dict[tuple[str, int], int] = {}

    def load(self, name: str, model: type[F]) -> F:
        path = self._directory / name
        try:
            text = read_text(path)
        except UnreadableFile as error:
            self._note(path, error.line or 1, error.text)
            return model()
        if text is None:
            return model()
        self.files.append(str(path))
        data = parse_yaml(text)
        for line, wrong in data.mistakes:
            self._note(path, line, wrong)
        if data.mistakes or data.content is None:
            return model()
        try:
            return self._check(name, model, data)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                place = tuple(part for part in problem["loc"] if part != "[key]")
                self._note(path, data.find_line(place), _describe(model, place, problem))
            return model()

    def refuse_strays(self) -> None:
        """A misspelt file would silently say nothing."""
        if not self._directory.is_dir():
            return
        for path in sorted(self._directory.iterdir()):
            if path.suffix in (".yaml", ".yml") and path.name not in FILES:
                import difflib  # noqa: PLC0415 - only for those who made a mistake

                near = difflib.get_close_matches(path.name, FILES, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(FILES)}"
                self._note(path, 1, f"is no policy file{hint}")

    def _check(self, name: str, model: type[F], data: YamlData) -> F:
        found = model.model_validate(data.content)
        for number, _ in enumerate(getattr(found, "tests", ()), 1):
            self.test_lines[name, number] = data.find_line(("tests", number - 1))
        return found

    def _note(self, path: Path, line: int, text: str) -> None:
        mistake = f"{path}:{line}: {text}"
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)


def _describe(model: type[BaseModel], place: Place, problem: typing.Any) -> str:  # noqa: ANN401 - pydantic's
    where = ".".join(str(part) for part in place)
    if problem["type"] == "extra_forbidden":
        known = _list_known_keys(model, place[:-1])
        import difflib  # noqa: PLC0415 - only for those who made a mistake

        near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
        return f"unknown key {str(place[-1])[:80]!r}{hint}"
    text = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{where or 'the file'}: {text[:1].lower()}{text[1:]}"


def _list_known_keys(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that may stand at a place, found by walking down the schema."""
    kind: object = model
    for part in place:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
        else:
            kind = typing.get_args(kind)[-1]
        kind = _unwrap(kind)
    assert isinstance(kind, type) and issubclass(kind, BaseModel)
    return sorted(kind.model_fields)


def _unwrap(kind: object) -> object:
    options = [one for one in typing.get_args(kind) if one is not type(None)]
    return options[0] if type(None) in typing.get_args(kind) else kind
