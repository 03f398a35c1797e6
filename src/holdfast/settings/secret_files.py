"""Secrets in files of their own, as Docker and Kubernetes mount them: `NAME_FILE` names the file.

The variables are obeyed in the environment only: a cloned project that could name files would
have any of them read, and sent to the address that it names as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.settings.files import UnreadableFile, read_text
from holdfast.settings.keys import FILE_SUFFIX, list_keys_by_variable

_NAMES_OF_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS", "DSN")


def list_secret_files(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the files that variables of an environment name, by the variable without `_FILE`.

    Of the settings' own variables all, of others those that are named like secrets.
    """
    known = list_keys_by_variable()
    found = {}
    for variable, path in environ.items():
        name = variable.removesuffix(FILE_SUFFIX)
        if name == variable or variable in known or not path.strip().startswith("/"):
            continue
        key = known.get(name)
        is_meant = key.is_secret if key else name.endswith(_NAMES_OF_SECRETS)
        if is_meant:
            found[name] = Path(path.strip())
    return found


def read_secret_file(path: Path) -> str:
    """Return the secret in a file, without the end of its line.

    Raises:
        UnreadableFile: there is none, it cannot be read, or it holds nothing or several lines.
    """
    if not path.is_absolute():
        raise UnreadableFile("must be an absolute path")
    text = read_text(path)
    if text is None:
        raise UnreadableFile(f"{path} does not exist")
    value = text.strip()
    if not value:
        raise UnreadableFile(f"{path} is empty")
    if "\n" in value or "\0" in value:
        raise UnreadableFile(f"{path} must hold one line, and nothing but the secret")
    return value


__all__ = ["list_secret_files", "read_secret_file"]
