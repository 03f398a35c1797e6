"""What tests of several rooms need from the machine."""

from __future__ import annotations

import machine
import pytest


@pytest.fixture(scope="session")
def bubblewrap():
    """Where bubblewrap is."""
    return machine.program("bwrap", "bubblewrap")
