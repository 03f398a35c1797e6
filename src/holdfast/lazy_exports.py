"""Doors that load what is behind them when it is first asked for.

A room lists its public names in its `__init__.py`; other rooms import them from there. Were
they imported at once, everybody who needs one name would pay for the whole room.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy_exports(
    package: str, modules: Mapping[str, str], rooms: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package.

    `modules` names, for each module of the package, what it offers, separated by blanks::

        if TYPE_CHECKING:
            from holdfast.tools import Gate as Gate
        else:
            __getattr__, __dir__, __all__ = lazy_exports(__name__, {"gate": "Gate"})

    `rooms` are packages within this one, with doors of their own.

    Type checkers read the imports; were they shown `__getattr__`, every name would do.
    """
    homes = {
        name: f"{package}.{module}" for module, names in modules.items() for name in names.split()
    }
    # Importing a submodule puts it into the package under its name, in place of the export.
    if clash := homes.keys() & modules.keys():
        raise ImportError(f"{package} offers names that are its modules too: {sorted(clash)}")
    names = sorted((*homes, *rooms))

    def load(name: str) -> object:
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home), name)
        # Found without this function from now on.
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *names}), names
