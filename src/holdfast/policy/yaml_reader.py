"""Read the nodes of a YAML text; see `yaml_file`."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from holdfast.policy.yaml_file import Place, YamlData

_DEEPEST = 20
_MOST_NODES = 20_000
_SCALARS = {
    "tag:yaml.org,2002:str",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:null",
}


def read_yaml(text: str, *, is_text_kept: bool) -> YamlData:
    """Read YAML; mistakes are returned, never raised."""
    try:
        wrong = list(_find_forbidden(text))
        if wrong:
            return YamlData(content=None, lines={}, mistakes=tuple(wrong))
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        return YamlData(content=None, lines={}, mistakes=((line, f"is not YAML: {error.problem}"),))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        note = f"is not YAML: {str(error).splitlines()[0] if str(error) else 'too deep'}"
        return YamlData(content=None, lines={}, mistakes=((1, note),))
    reader = _Reader(is_text_kept)
    content = reader.read(node, ()) if node is not None else None
    return YamlData(content=content, lines=reader.lines, mistakes=tuple(reader.mistakes))


def _find_forbidden(text: str) -> Iterator[tuple[int, str]]:
    """What no plain file needs, found before anything is built."""
    depth = nodes = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            yield line, "has an alias (*); write the value out"
        elif getattr(event, "anchor", None):
            yield line, "has an anchor (&); write values out"
        if getattr(event, "tag", None):
            yield line, f"has a tag ({event.tag}); plain values only"
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                yield line, "begins a second document; one file is one document"
        nodes += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or nodes > _MOST_NODES:
            yield line, "is too deep or too long"
            return


class _Reader:
    """Builds plain data from nodes and notes where everything stands."""

    def __init__(self, is_text_kept: bool) -> None:
        self._is_text_kept = is_text_kept
        self.lines: dict[Place, int] = {}
        self.mistakes: list[tuple[int, str]] = []
        self._values = yaml.SafeLoader("")

    def read(self, node: yaml.Node, place: Place) -> object:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._map(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*place, n)) for n, item in enumerate(node.value)]
        if self._is_text_kept or node.tag not in _SCALARS:
            # A date, for instance: what was written is what counts.
            return str(node.value)
        try:
            value: object = self._values.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError):
            self.mistakes.append((node.start_mark.line + 1, f"{node.value!r} cannot be read"))
            return None
        return value

    def _map(self, node: yaml.MappingNode, place: Place) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.mistakes.append((line, "a key must be a word"))
                continue
            # What was written: `on` and `1` are keys like any other.
            key = str(key_node.value)
            if key == "<<":
                self.mistakes.append((line, "`<<` does not work here; write values out"))
            elif key in found:
                self.mistakes.append((line, f"{key!r} occurs twice"))
            else:
                self.lines[(*place, key)] = line
                found[key] = self.read(value_node, (*place, key))
        return found
