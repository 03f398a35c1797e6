"""Stores by address: a URL says which database keeps a journal.

The scheme chooses the kind of store, the rest is that kind's own affair:

- `sqlite:///var/lib/holdfast` is the file `journal.db` in this directory, whose path is
  absolute; `sqlite://` alone, or no address at all, means the state directory;
- `memory://` keeps everything in the process, private to the process that opened it;
- `postgresql://USER:PASSWORD@HOST/DATABASE` is the schema `holdfast` of a database (extra
  `postgres`).

Packages add kinds by entry points of the group `holdfast.stores`: the name is the scheme, the
object a `StoreKind`. One is loaded when an address names it, and cannot replace what is built in.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import MissingExtra, UsageError
from holdfast.journal.projection import AnyProjection
from holdfast.journal.store import Chains, Durability, Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind")


class AddressRegistry(Generic[Kind]):
    """Finds what serves an address by its scheme: built in, or offered by an entry point."""

    def __init__(self, group: str, kind: type[Kind], builtin: Mapping[str, str]) -> None:
        """Know the built-in ones by scheme, as `module:object`; nothing is loaded yet."""
        self._group = group
        self._kind = kind
        self._builtin = builtin

    def schemes(self) -> tuple[str, ...]:
        """Return all schemes that are known now."""
        return tuple(sorted({*self._builtin, *(point.name for point in self._list_offered())}))

    def _list_offered(self) -> Sequence[EntryPoint]:
        # It takes longer to load than the journal, and what is built in does without it.
        from importlib.metadata import entry_points  # noqa: PLC0415

        return tuple(entry_points(group=self._group))

    def find(self, url: str) -> tuple[Kind, SplitResult]:
        """Return what serves an address, and the address in its parts.

        Raises:
            UsageError: no store serves it, or several do. It tells the scheme only: an
            address
                may hold a password.
        """
        try:
            address = urlsplit(url)
        except ValueError:
            raise UsageError(detail="The address of a store is no URL.") from None
        scheme = address.scheme
        if scheme in self._builtin and url.startswith("://", len(scheme)):
            module, _, name = self._builtin[scheme].partition(":")
            try:
                builtin: Kind = getattr(importlib.import_module(module), name)
            except ModuleNotFoundError as error:
                package = error.name or ""
                raise MissingExtra(
                    what=f"A store at {scheme}://", package=package, extra="postgres"
                ) from error
            return builtin, address
        points = [point for point in self._list_offered() if scheme and point.name == scheme]
        if not points or not url.startswith("://", len(scheme)):
            named = f"the scheme {scheme!r}" if scheme else "an address without a scheme"
            raise UsageError(
                detail=f"No store is known for {named}; known are "
                f"{', '.join(f'{one}://' for one in self.schemes())}."
            )
        if len(points) > 1:
            raise UsageError(detail=f"Several packages offer stores for the scheme {scheme!r}.")
        found: object = points[0].load()
        if not isinstance(found, self._kind):
            raise UsageError(
                detail=f"What {points[0].value} offers for {scheme!r} is no {self._kind.__name__}."
            )
        return found, address


RoleKind: TypeAlias = Literal["records", "wakeups"]
"""What a role of a database is for: everything that a process keeps, or only what a worker takes
sessions from."""


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a store is opened with besides its address."""

    base_dir: Path
    """The state directory; a store that keeps files keeps them there unless told otherwise."""
    projections: tuple[AnyProjection, ...] = ()
    durability: Durability = "process"
    clock: Clock = SYSTEM


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Which schema a database has, and what this Holdfast would make of it."""

    store: str
    """Its address, without what is secret in it."""
    version: int
    """0 for a database that is not set up yet."""
    known: int
    """The newest that this Holdfast knows."""
    applied: tuple[str, ...] = ()
    """What a migration has just applied."""
    pending: tuple[str, ...] = ()
    """What a migration would apply."""


class StoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of store, as a package offers it."""

    open: Callable[[SplitResult, StoreOptions], Store]
    """Returns the store at an address; touches nothing before `Store.open`."""
    at_rest: Callable[[SplitResult, Path], Chains | None] | None = None
    """Returns its chains where nothing can be written, such as in a backup; `None` if there are
    none."""
    places: Callable[[SplitResult, Path], tuple[Path, ...]] | None = None
    """Returns where on this machine it keeps its files, which no tool may see."""
    migrate: Callable[[SplitResult, StoreOptions, bool], Awaitable[SchemaStatus]] | None = None
    """Says which schema it has, and brings it up to date if asked to; for kinds that many processes
    share, which are not changed by the first one that opens them."""
    grant: Callable[[SplitResult, str, RoleKind], Awaitable[None]] | None = None
    """Lets a role of the database do what a kind of process needs."""
    tenant_url: Callable[[SplitResult, str], str] | None = None
    """Returns the address of a tenant's records in the same database, for stores that keep tenants
    apart themselves."""
    backup: Callable[[Path, Path, Callable[[int, int], None]], None] | None = None
    """Copies a database file while it is in use, as it is at one moment; for a thread."""
    erase_tenant: Callable[[SplitResult], Awaitable[None]] | None = None
    """Removes all that is kept of the tenant that an address names."""


_KINDS = AddressRegistry(
    "holdfast.stores",
    StoreKind,
    {
        "memory": "holdfast.journal.stores.memory:KIND",
        "postgres": "holdfast.journal.stores.postgres:KIND",
        "postgresql": "holdfast.journal.stores.postgres:KIND",
        "sqlite": "holdfast.journal.stores.sqlite:KIND",
    },
)
_DEFAULT = "sqlite://"


def list_schemes() -> tuple[str, ...]:
    """Return the schemes of all stores that a journal can be kept in here."""
    return _KINDS.schemes()


def open_store(
    url: str,
    *,
    base_dir: Path,
    projections: Sequence[AnyProjection] = (),
    durability: Durability = "process",
    clock: Clock = SYSTEM,
) -> Store:
    """Return the store at an address; without one, that of the state directory `base_dir`.

    Nothing is touched before the store is opened.

    Raises:
        UsageError: no kind of store is known for the scheme, or the rest means nothing to it.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    options = StoreOptions(
        base_dir=base_dir, projections=tuple(projections), durability=durability, clock=clock
    )
    return kind.open(address, options)


async def migrate_store(
    url: str, *, base_dir: Path, projections: Sequence[AnyProjection], is_dry: bool = False
) -> SchemaStatus:
    """Bring the schema of a store up to date, or only say which one it has.

    Raises:
        SchemaTooNew: a newer Holdfast has changed it.
        UsageError: this kind of store has no schema that is migrated by hand.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.migrate is None:
        raise UsageError(
            detail=f"A store at {address.scheme}:// is brought up to date when it is opened; "
            "only a database server is migrated."
        )
    options = StoreOptions(base_dir=base_dir, projections=tuple(projections))
    return await kind.migrate(address, options, is_dry)


async def grant_role(url: str, role: str, kind: RoleKind) -> None:
    """Let a role of the database at an address do what a kind of process needs.

    Raises:
        NotFound: there is no such role.
        UsageError: this kind of store has no roles, or nothing would keep this one within bounds.
    """
    found, address = _KINDS.find(url or _DEFAULT)
    if found.grant is None:
        raise UsageError(
            detail=f"A store at {address.scheme}:// has no roles; only a database server has."
        )
    await found.grant(address, role, kind)


def find_tenant_url(url: str, tenant: str) -> str | None:
    """Return the address of a tenant's records; `None` if the store does not know tenants.

    Raises:
        UsageError: the address itself names this tenant.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    return None if kind.tenant_url is None else kind.tenant_url(address, tenant)


def backup_files(
    url: str, source: Path, target: Path, progress: Callable[[int, int], None]
) -> list[Path]:
    """Copy every database file below a directory while it is in use; for a thread.

    Raises:
        UsageError: this kind of store keeps no files.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.backup is None:
        raise UsageError(
            detail=f"A store at {address.scheme}:// is backed up with its own tools; for Postgres "
            "these are pg_dump and pg_basebackup."
        )
    found = []
    for file in sorted(source.rglob("*.db")):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind.backup(file, place, progress)
        found.append(place)
    return found


async def erase_tenant(url: str, tenant: str) -> None:
    """Remove all records of a tenant from a store that keeps tenants apart; none else is touched.

    Raises:
        UsageError: the address itself names this tenant.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.erase_tenant is not None and kind.tenant_url is not None:
        await kind.erase_tenant(urlsplit(kind.tenant_url(address, tenant)))


def open_chains(url: str, *, base_dir: Path) -> Chains | None:
    """Return the chains of a store where nothing can be written, to check them.

    `None` if there are none, or if that kind of store cannot be read so.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    return None if kind.at_rest is None else kind.at_rest(address, base_dir)


def list_store_places(url: str, *, base_dir: Path) -> tuple[Path, ...]:
    """Return where on this machine a store keeps its files, which no tool may see."""
    kind, address = _KINDS.find(url or _DEFAULT)
    return () if kind.places is None else kind.places(address, base_dir)


def resolve_directory(address: SplitResult, base_dir: Path) -> Path:
    """Return the directory that an address names by an absolute path, or the state directory.

    Raises:
        UsageError: there is more to the address than a path.
    """
    if address.netloc or address.query or address.fragment:
        raise UsageError(
            detail=f"{address.scheme}:// is followed by the absolute path of a directory, "
            f"such as {address.scheme}:///var/lib/holdfast, and nothing else."
        )
    path = unquote(address.path)
    if "\0" in path:
        raise UsageError(detail="The path of a store must not contain a NUL character.")
    return Path("/" + path.lstrip("/")) if path else base_dir
