import os
from contextlib import contextmanager

import pytest

from holdfast.sandbox import Workspace
from holdfast.sandbox.beneath import KernelFinder, WalkingFinder


@pytest.fixture(params=[KernelFinder, WalkingFinder], ids=["kernel", "walk"])
def finder(request):
    return request.param()


@pytest.fixture
def place(tmp_path):
    """A workspace directory beside a directory that must stay untouched."""
    (tmp_path / "ws" / "src").mkdir(parents=True)
    (tmp_path / "ws" / "src" / "a.py").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path


@pytest.fixture
def ws(place, finder):
    return Workspace(place / "ws", finder=finder)


@contextmanager
def _as_nobody():
    """Give up root for a block, so that file modes mean something."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def as_nobody(tmp_path):
    for path in [tmp_path, *tmp_path.parents]:
        if path.owner() == "root" and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    return _as_nobody
