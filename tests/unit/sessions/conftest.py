"""Sessions on both stores, with time under control."""

from session_fixtures import (  # noqa: F401 - fixtures
    clock,
    elsewhere,
    journal,
    keeper,
    manager,
    queue,
    session,
)
