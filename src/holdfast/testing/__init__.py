"""The public test kit: what Holdfast's own tests use, for the tests of its users.

Shipping code never imports this room. Names are loaded when they are first used: the pytest
plugin of the crash kit is part of every test run, and must cost nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.testing.artifact_conformance import (
        ArtifactBackendConformance as ArtifactBackendConformance,
    )
    from holdfast.testing.cassette import Cassette as Cassette
    from holdfast.testing.clock import FakeClock as FakeClock
    from holdfast.testing.crash import CrashFailed as CrashFailed
    from holdfast.testing.crash import CrashReport as CrashReport
    from holdfast.testing.crash import Kill as Kill
    from holdfast.testing.crash import cross_boundary as cross_boundary
    from holdfast.testing.crash import run_matrix as run_matrix
    from holdfast.testing.fake_server import FakeServer as FakeServer
    from holdfast.testing.fake_server import Recorded as Recorded
    from holdfast.testing.fake_server import Reply as Reply
    from holdfast.testing.fake_server import ScriptedCall as ScriptedCall
    from holdfast.testing.memory_conformance import (
        MemoryStorageConformance as MemoryStorageConformance,
    )
    from holdfast.testing.models import Answer as Answer
    from holdfast.testing.models import FunctionModel as FunctionModel
    from holdfast.testing.models import ModelReply as ModelReply
    from holdfast.testing.models import ScriptedModel as ScriptedModel
    from holdfast.testing.models import tool_call as tool_call
    from holdfast.testing.state_conformance import StateStoreConformance as StateStoreConformance
    from holdfast.testing.state_migrations import check_migrations as check_migrations
    from holdfast.testing.store_conformance import StoreConformance as StoreConformance
    from holdfast.testing.surroundings import make_tool_context as make_tool_context
    from holdfast.testing.surroundings import memory_state as memory_state
    from holdfast.testing.surroundings import run_services as run_services
    from holdfast.testing.wire_conformance import CHECKS as CHECKS
    from holdfast.testing.wire_conformance import Ability as Ability
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "artifact_conformance": "ArtifactBackendConformance",
            "cassette": "Cassette",
            "clock": "FakeClock",
            "crash": "CrashFailed CrashReport Kill cross_boundary run_matrix",
            "fake_server": "FakeServer Recorded Reply ScriptedCall",
            "memory_conformance": "MemoryStorageConformance",
            "models": "Answer FunctionModel ModelReply ScriptedModel tool_call",
            "state_conformance": "StateStoreConformance",
            "state_migrations": "check_migrations",
            "store_conformance": "StoreConformance",
            "surroundings": "memory_state run_services make_tool_context",
            "wire_conformance": "Ability CHECKS",
        },
    )
