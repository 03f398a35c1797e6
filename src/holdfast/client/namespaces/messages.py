"""`client.messages`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, messages


class MessageNamespace(Surface[Mode]):
    """Messages: add, read, change, delete."""

    add = messages.add
    list = messages.list_
    get = messages.get
    update_part = messages.update_part
    delete = messages.delete
