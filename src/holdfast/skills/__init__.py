"""Find, read and offer skills: folders with a SKILL.md, in the open Agent Skills format.

Names and descriptions stand in the prompt, the body comes through the `skill` tool, files
are read on demand. What a project brings is offered only after a person trusted it: text of
strangers in a prompt is prompt injection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.skills.frontmatter import Fault as Fault
    from holdfast.skills.frontmatter import Frontmatter as Frontmatter
    from holdfast.skills.frontmatter import FrontmatterValue as FrontmatterValue
    from holdfast.skills.frontmatter import read_frontmatter as read_frontmatter
    from holdfast.skills.injector import SkillInjector as SkillInjector
    from holdfast.skills.injector import render_catalog as render_catalog
    from holdfast.skills.library import HOME_FOLDERS as HOME_FOLDERS
    from holdfast.skills.library import SEPARATE_PROJECTS as SEPARATE_PROJECTS
    from holdfast.skills.library import SkillCatalog as SkillCatalog
    from holdfast.skills.library import SkillLibrary as SkillLibrary
    from holdfast.skills.library import list_levels as list_levels
    from holdfast.skills.library import project_root as project_root
    from holdfast.skills.skill import MAX_SKILL_BYTES as MAX_SKILL_BYTES
    from holdfast.skills.skill import SKILL_FILE as SKILL_FILE
    from holdfast.skills.skill import Skill as Skill
    from holdfast.skills.skill import check_skill as check_skill
    from holdfast.skills.skill import parse_skill as parse_skill
    from holdfast.skills.tool import make_skill_tool as make_skill_tool
    from holdfast.skills.trust import InstructionTrust as InstructionTrust
    from holdfast.skills.trust import TrustStore as TrustStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "frontmatter": "Fault Frontmatter FrontmatterValue read_frontmatter",
            "injector": "SkillInjector render_catalog",
            "library": "HOME_FOLDERS SEPARATE_PROJECTS SkillCatalog SkillLibrary list_levels "
            "project_root",
            "skill": "MAX_SKILL_BYTES SKILL_FILE Skill check_skill parse_skill",
            "tool": "make_skill_tool",
            "trust": "InstructionTrust TrustStore",
        },
    )
