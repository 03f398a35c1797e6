"""`client.skills`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, skills


class SkillNamespace(Surface[Mode]):
    """Skills."""

    register = skills.register
    list = skills.list_
    trust = skills.trust
