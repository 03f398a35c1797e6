import pytest

from holdfast.clock import SYSTEM
from holdfast.runs import Confinement
from holdfast.runtime import ProcessEnvironment
from holdfast.sandbox import Workspace
from holdfast.testing import make_tool_context


@pytest.fixture
def root(tmp_path):
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


@pytest.fixture
def context(root):
    return make_tool_context(
        workspace=Workspace(root),
        session_id="ses_1",
        run_id="run_1",
        call_id="call_1",
        open_reader=ProcessEnvironment(Confinement(), SYSTEM).open_reader,
    )


@pytest.fixture
def call(context):
    """Validate and call a tool, as the manager will."""

    async def go(tool, **arguments):
        return await tool.call(tool.validate(arguments), context)

    return go
