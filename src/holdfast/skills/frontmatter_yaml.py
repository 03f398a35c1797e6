"""Read the YAML of a frontmatter block; see `frontmatter`."""

from __future__ import annotations

import yaml

from holdfast.skills.frontmatter import Fault, Frontmatter, FrontmatterValue

MAX_DEPTH = 8


def parse_block(block: str, body: str) -> Frontmatter:
    """Return the fields of a block with their lines; what is wrong is in `faults`."""
    try:
        root = yaml.compose(block, Loader=_PlainLoader)
        if root is None:
            return Frontmatter(body=body)
        if not isinstance(root, yaml.MappingNode):
            raise _UnfitError("the block is no list of `key: value` lines", 2)
        fields = _read_mapping(root, 0)
    except _UnfitError as error:
        return Frontmatter(body=body, faults=(Fault(text=error.text, line=error.line),))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark is not None else 1
        text = f"this is no YAML: {error.problem or error.context}"
        return Frontmatter(body=body, faults=(Fault(text=text, line=line),))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        kind = type(error).__name__
        return Frontmatter(body=body, faults=(Fault(text=f"this is no YAML ({kind})", line=1),))
    numbers = {key.value: key.start_mark.line + 2 for key, _ in root.value}
    return Frontmatter(fields=fields, lines=numbers, body=body)


class _UnfitError(Exception):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


class _PlainLoader(yaml.BaseLoader):
    """Composes nodes, and refuses what a plain file does not need."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases, anchors and tags before anything is made of them."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _UnfitError("anchors and aliases are not allowed", line)
        tag = getattr(event, "tag", None)
        if tag and tag != "!":
            raise _UnfitError(f"the tag {tag[:40]!r} is not allowed", line)
        if len(self.states) > 4 * MAX_DEPTH:
            raise _UnfitError("it is nested too deeply", line)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _read_mapping(node: yaml.MappingNode, depth: int) -> dict[str, FrontmatterValue]:
    found: dict[str, FrontmatterValue] = {}
    for key, value in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            raise _UnfitError("a key must be a word", line)
        if key.value in found:
            raise _UnfitError(f"{key.value!r} is given twice", line)
        found[key.value] = _read_value(value, depth + 1)
    return found


def _read_value(node: yaml.Node, depth: int) -> FrontmatterValue:
    if depth > MAX_DEPTH:
        raise _UnfitError("it is nested too deeply", node.start_mark.line + 2)
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, depth)
    if isinstance(node, yaml.SequenceNode):
        return [_read_value(item, depth + 1) for item in node.value]
    return str(node.value)
