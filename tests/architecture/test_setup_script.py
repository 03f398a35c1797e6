"""scripts/_setup installs once, whole, and for everybody who waits.

Everything is real but pip and uv, which are replaced by what writes down its calls;
tests/docs/test_fresh_clone.py has them real.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PIP = """
with_uv() {
    [ -e "$ROOT/has-uv" ] && echo "uv $1" >>"$ROOT/pip.log"
}
pip() {
    echo "$*" >>"$ROOT/pip.log"
    [ ! -e "$ROOT/pip-fails" ] || return 1
    printf '#!/bin/sh\\n' >"$VENV/bin/holdfast"
    chmod +x "$VENV/bin/holdfast"
}
"""


# Copying pip into each environment would take most of the time; it is not what is tested.
QUICK_PYTHON = f"""#!/bin/sh
[ "$1 $2" != "-m venv" ] || set -- "$@" --without-pip --system-site-packages
exec {sys.executable} "$@"
"""


# A Python of another version, as far as the script asks.
ANOTHER_PYTHON = """#!/bin/sh
case "$1" in
-V) echo Python {version} ;;
-c) exec {python} -c "import sys; sys.version_info = tuple(map(int, '{version}'.split('.')))
$2" ;;
*) exec {python} "$@" ;;
esac
"""


class Checkout:
    """A directory with our scripts, small locks, and a recorded pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/_setup", folder / "scripts/_setup")
        for name in ["pyproject.toml", "requirements.lock", "requirements-run.lock"]:
            (folder / name).write_text(name)
        self.python = folder / "quick-python"
        self.python.write_text(QUICK_PYTHON)
        self.python.chmod(0o755)

    def another_python(self, path: Path, version: str) -> str:
        path.write_text(ANOTHER_PYTHON.format(python=self.python, version=version))
        path.chmod(0o755)
        return str(path)

    def start(self, level: str, **environment: str) -> subprocess.Popen[str]:
        script = f". scripts/_setup\n{PIP}\nset -eu\nsetup {level}"
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**os.environ, "PYTHON": str(self.python), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, level: str, **environment: str) -> tuple[int, str]:
        process = self.start(level, **environment)
        out, err = process.communicate(timeout=120)
        assert out == "", "stdout belongs to holdfast"
        return process.returncode, err

    def installations(self) -> list[str]:
        log = self.folder / "pip.log"
        calls = log.read_text().splitlines() if log.exists() else []
        return [Path(call.split()[-1]).name for call in calls if "--require-hashes" in call]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


RUN, ALL = "requirements-run.lock", "requirements.lock"


def test_a_second_call_installs_nothing(checkout: Checkout) -> None:
    assert checkout.setup("run")[0] == 0
    assert checkout.setup("run") == (0, "")
    assert checkout.installations() == [RUN]


def test_what_is_installed_for_tests_serves_to_run_as_well(checkout: Checkout) -> None:
    assert checkout.setup("all")[0] == 0
    assert checkout.setup("run") == (0, "")
    assert checkout.installations() == [ALL]


def test_where_uv_can_be_had_pip_installs_nothing_but_the_project(checkout: Checkout) -> None:
    (checkout.folder / "has-uv").touch()
    assert checkout.setup("run")[0] == 0
    lock, project = (checkout.folder / "pip.log").read_text().splitlines()
    assert lock == f"uv {checkout.folder / RUN}"
    assert project.endswith(f"--editable {checkout.folder}")


@pytest.mark.parametrize("changed", ["pyproject.toml", RUN])
def test_a_changed_lock_or_project_installs_again(checkout: Checkout, changed: str) -> None:
    checkout.setup("run")
    (checkout.folder / changed).write_text("changed")
    checkout.setup("run")
    assert checkout.installations() == [RUN, RUN]


def test_an_installation_that_broke_off_is_started_afresh(checkout: Checkout) -> None:
    (checkout.folder / "pip-fails").touch()
    status, said = checkout.setup("run")
    assert status != 0
    assert "did not finish" in said
    leftover = checkout.folder / ".venv/leftover"
    leftover.touch()
    (checkout.folder / "pip-fails").unlink()
    assert checkout.setup("run")[0] == 0
    assert not leftover.exists()
    assert checkout.setup("run") == (0, "")


def test_a_virtual_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.setup("run")
    (checkout.folder / ".venv/bin/python").unlink()
    status, said = checkout.setup("run")
    assert status == 0
    assert "making" in said


def test_another_python_that_is_asked_for_replaces_the_one_of_before(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.setup("run")
    leftover = checkout.folder / ".venv/leftover"
    leftover.touch()
    checkout.setup("run", PYTHON="")
    assert leftover.exists()
    another = checkout.another_python(tmp_path / "another", "3.99.0")
    status, said = checkout.setup("run", PYTHON=another)
    assert status == 0, said
    assert "with Python 3.99.0" in said
    assert not leftover.exists()


@pytest.mark.parametrize("version", ["3.10.12", None])
def test_a_python_that_is_asked_for_and_does_not_fit_is_named(
    checkout: Checkout, tmp_path: Path, version: str | None
) -> None:
    asked = tmp_path / "asked"
    if version:
        checkout.another_python(asked, version)
    status, said = checkout.setup("run", PYTHON=str(asked))
    assert status != 0
    assert f"PYTHON is set to {asked}, which is no Python 3.11 or newer" in said
    assert checkout.installations() == []


def test_two_calls_at_once_install_once(checkout: Checkout) -> None:
    both = [checkout.start("run"), checkout.start("run")]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    assert checkout.installations() == [RUN]


def test_without_a_python_the_message_says_what_to_run(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ["bash", "dirname", "cat", "sha256sum", "ls", "rm"]:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    status, said = checkout.setup("run", PATH=str(tools), PYTHON="")
    assert status != 0
    assert "apt-get install -y python3 python3-venv python3-pip" in said
    assert checkout.installations() == []


def test_where_python_is_too_old_apt_is_not_asked_for_it(
    checkout: Checkout, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ["bash", "dirname", "cat", "sha256sum"]:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    for name, script in {"id": "echo 0", "apt-get": f"touch {tmp_path}/apt-was-asked"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    checkout.another_python(tools / "python3", "3.10.12")
    status, said = checkout.setup("run", PATH=str(tools), PYTHON="")
    assert status != 0
    assert "needs Python 3.11 or newer, and python3 is Python 3.10.12" in said
    assert not (tmp_path / "apt-was-asked").exists()


def test_root_on_a_bare_debian_gets_venv_from_apt(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ["bash", "dirname", "cat", "sha256sum", "ls", "rm", "chmod", "cut", "ln"]:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    apt = f'#!/bin/sh\necho "$@" >>{tmp_path}/apt.log\n'
    apt += f'case "$1" in install) ln -s {checkout.python} {tools}/python3 ;; esac\n'
    for name, text in {"id": "#!/bin/sh\necho 0\n", "apt-get": apt}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    status, said = checkout.setup("run", PATH=str(tools), PYTHON="")
    assert status == 0, said
    assert (tmp_path / "apt.log").read_text().splitlines() == [
        "update -q",
        "install -y python3 python3-venv python3-pip",
    ]
