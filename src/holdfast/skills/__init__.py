"""Find, read and offer skills: folders with a SKILL.md, in the open Agent Skills format.

Names and descriptions stand in the prompt, the body comes through the `skill` tool, files
are read on demand. What a project brings is offered only after a person trusted it.
"""

from holdfast.skills.injector import SkillInjector, catalog_text
from holdfast.skills.library import SkillCatalog, SkillLibrary
from holdfast.skills.skill import Skill, check_skill, parse_skill
from holdfast.skills.tool import skill_tool
from holdfast.skills.trust import TrustStore

__all__ = [
    "Skill",
    "SkillCatalog",
    "SkillInjector",
    "SkillLibrary",
    "TrustStore",
    "catalog_text",
    "check_skill",
    "parse_skill",
    "skill_tool",
]
