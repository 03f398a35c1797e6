"""Stores of blobs by address: a URL says where the bytes of artifacts are.

- `file://` alone, or no address at all, is `artifacts` in the state directory;
  `file:///srv/artifacts` another directory;
- `sqlite://` is the file `artifacts.db` in the state directory, `sqlite:///DIRECTORY` in another;
- `postgresql://USER:PASSWORD@HOST/DATABASE` is the schema `holdfast_artifacts` of a database (extra
  `postgres`);
- `memory://` keeps them in the process;
- `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` (extra `s3`).

Packages add kinds by entry points of the group `holdfast.artifact_stores`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from holdfast.artifacts.blobs import BlobStore, split_key
from holdfast.errors import ConfigError, UsageError
from holdfast.journal import AddressRegistry, SchemaStatus, resolve_directory

FOLDER = "artifacts"
TENANTS_FOLDER = "tenants"
_DEFAULT = "file://"
_ERASED_AT_ONCE = 500
_SERVERS = ("postgres", "postgresql")


class BlobStoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a store of blobs is opened with besides its address."""

    base_dir: Path
    endpoint: str = ""
    """Address of the server of a bucket, where it is not the vendor's own."""
    region: str = ""
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Credentials by the names that vendors give them, such as AWS_ACCESS_KEY_ID."""


class BlobStoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of store of blobs, as a package offers it."""

    open: Callable[[SplitResult, BlobStoreOptions], BlobStore]
    """Returns the store at an address; touches nothing before it is used."""
    place: Callable[[SplitResult, Path], Path] | None = None
    """Returns where on this machine it keeps its files, which no tool may see."""
    migrate: Callable[[SplitResult, Path, bool], Awaitable[SchemaStatus]] | None = None
    """Says which schema it has, and brings it up to date if asked to; see `StoreKind.migrate`."""
    grant: Callable[[SplitResult, str], Awaitable[None]] | None = None
    """Lets a role of the database use it; see `StoreKind.grant`."""
    tenant_url: Callable[[SplitResult, str], str] | None = None
    """Returns where a tenant has a place of its own at an address; without it all share one, and
    the first journal that saves there is the only one."""
    erase: Callable[[SplitResult, BlobStoreOptions], Awaitable[None]] | None = None
    """Removes all that is at an address; without it, one content after the other is removed."""


def _open_files(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores.files import FileBlobs  # noqa: PLC0415 - when chosen

    return FileBlobs(_find_file_place(address, options.base_dir))


def _find_file_place(address: SplitResult, base_dir: Path) -> Path:
    return resolve_directory(address, base_dir / FOLDER)


def _open_sqlite(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores.sqlite import SqliteBlobs  # noqa: PLC0415 - when chosen

    return SqliteBlobs(_find_sqlite_place(address, options.base_dir))


def _find_sqlite_place(address: SplitResult, base_dir: Path) -> Path:
    return resolve_directory(address, base_dir) / "artifacts.db"


def _find_tenant_folder(address: SplitResult, tenant: str) -> str:
    # Without a path it is in the state directory, of which each tenant has its own.
    folder = f"{address.path.rstrip('/')}/{TENANTS_FOLDER}/{tenant}" if address.path else ""
    return f"{address.scheme}://{folder}"


def _find_tenant_prefix(address: SplitResult, tenant: str) -> str:
    bucket, path = address.netloc, address.path.strip("/")
    parts = [bucket, path, TENANTS_FOLDER, tenant] if path else [bucket, TENANTS_FOLDER, tenant]
    return f"{address.scheme}://{'/'.join(parts)}"


async def _erase_files(address: SplitResult, options: BlobStoreOptions) -> None:
    await asyncio.to_thread(_remove_all, [_find_file_place(address, options.base_dir)])


async def _erase_sqlite(address: SplitResult, options: BlobStoreOptions) -> None:
    place = _find_sqlite_place(address, options.base_dir)
    # The file itself, because removed rows stay readable in it, and what SQLite keeps beside it.
    await asyncio.to_thread(_remove_all, list(place.parent.glob(f"{place.name}*")))
    with contextlib.suppress(OSError):  # something else lies there
        await asyncio.to_thread(place.parent.rmdir)


def _remove_all(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _open_memory(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores.memory import MemoryBlobs  # noqa: PLC0415 - when chosen

    return MemoryBlobs()


def _open_s3(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores import objects  # noqa: PLC0415 - when chosen

    bucket, prefix = _parse_bucket(address)
    store = objects.load_obstore(address.scheme)
    config = _select_credentials(
        options,
        access_key_id="AWS_ACCESS_KEY_ID",
        secret_access_key="AWS_SECRET_ACCESS_KEY",
        session_token="AWS_SESSION_TOKEN",
        region="AWS_REGION",
        endpoint="AWS_ENDPOINT_URL",
    )
    if options.region:
        config["region"] = options.region
    if options.endpoint:
        config["endpoint"] = options.endpoint
    place = f"{address.scheme}://{bucket}/{prefix}"
    with _explain_failure(place):
        client = store.S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options=_make_client_options(config.get("endpoint", "")),
            retry_config=objects.retry_options(),
        )
    return objects.ObjectBlobs(client, place)


def _open_google(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores import objects  # noqa: PLC0415 - when chosen

    bucket, prefix = _parse_bucket(address)
    store = objects.load_obstore(address.scheme)
    config = _select_credentials(
        options,
        service_account="GOOGLE_SERVICE_ACCOUNT",
        service_account_key="GOOGLE_SERVICE_ACCOUNT_KEY",
        application_credentials="GOOGLE_APPLICATION_CREDENTIALS",
    )
    if options.endpoint:
        config["base_url"] = options.endpoint
    place = f"{address.scheme}://{bucket}/{prefix}"
    with _explain_failure(place):
        client = store.GCSStore(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options=_make_client_options(options.endpoint),
            retry_config=objects.retry_options(),
        )
    return objects.ObjectBlobs(client, place)


def _open_azure(address: SplitResult, options: BlobStoreOptions) -> BlobStore:
    from holdfast.artifacts.stores import objects  # noqa: PLC0415 - when chosen

    container, prefix = _parse_bucket(address)
    store = objects.load_obstore(address.scheme)
    config = _select_credentials(
        options,
        account_name="AZURE_STORAGE_ACCOUNT_NAME",
        account_key="AZURE_STORAGE_ACCOUNT_KEY",
        client_id="AZURE_STORAGE_CLIENT_ID",
        client_secret="AZURE_STORAGE_CLIENT_SECRET",
        tenant_id="AZURE_STORAGE_TENANT_ID",
    )
    if options.endpoint:
        config["endpoint"] = options.endpoint
    place = f"{address.scheme}://{container}/{prefix}"
    with _explain_failure(place):
        client = store.AzureStore(
            container,
            prefix=prefix or None,
            config=config,
            client_options=_make_client_options(options.endpoint),
            retry_config=objects.retry_options(),
        )
    return objects.ObjectBlobs(client, place)


def _parse_bucket(address: SplitResult) -> tuple[str, str]:
    """Return the bucket and the prefix that an address names."""
    prefix = unquote(address.path).strip("/")
    is_plain = not address.query and not address.fragment and not address.username
    if not address.netloc or not is_plain or any(p in (".", "..") for p in prefix.split("/")):
        raise UsageError(
            detail=f"{address.scheme}:// is followed by a bucket and perhaps a prefix, such as "
            f"{address.scheme}://my-bucket/holdfast, and nothing else."
        )
    return address.netloc, prefix


def _select_credentials(options: BlobStoreOptions, **names: str) -> dict[str, str]:
    found = {option: options.variables.get(name, "") for option, name in names.items()}
    return {option: value for option, value in found.items() if value}


@contextlib.contextmanager
def _explain_failure(place: str) -> Iterator[None]:
    """Turn what the client of a bucket refuses into an error that names the setting."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

    try:
        yield
    except (BaseError, ValueError) as error:
        # Only its first line: what follows may repeat the credentials.
        detail = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ConfigError(detail=f"artifacts.url: {place} cannot be opened: {detail}") from error


def _make_client_options(endpoint: str) -> dict[str, object]:
    # A bucket takes its time to join the parts of a large file, or to copy it; the usual 30
    # seconds of the client are also all that a download as a whole would get.
    options: dict[str, object] = {"timeout": "15 minutes", "connect_timeout": "10 seconds"}
    # Without TLS only where the operator wrote an address without it.
    return {**options, "allow_http": True} if endpoint.startswith("http://") else options


FILES = BlobStoreKind(
    open=_open_files, place=_find_file_place, tenant_url=_find_tenant_folder, erase=_erase_files
)
SQLITE = BlobStoreKind(
    open=_open_sqlite, place=_find_sqlite_place, tenant_url=_find_tenant_folder, erase=_erase_sqlite
)
MEMORY = BlobStoreKind(open=_open_memory)
S3 = BlobStoreKind(open=_open_s3, tenant_url=_find_tenant_prefix)
GOOGLE = BlobStoreKind(open=_open_google, tenant_url=_find_tenant_prefix)
AZURE = BlobStoreKind(open=_open_azure, tenant_url=_find_tenant_prefix)
_KINDS = AddressRegistry(
    "holdfast.artifact_stores",
    BlobStoreKind,
    {
        "file": f"{__name__}:FILES",
        "sqlite": f"{__name__}:SQLITE",
        "memory": f"{__name__}:MEMORY",
        "postgres": "holdfast.artifacts.stores.postgres:KIND",
        "postgresql": "holdfast.artifacts.stores.postgres:KIND",
        "s3": f"{__name__}:S3",
        "gs": f"{__name__}:GOOGLE",
        "az": f"{__name__}:AZURE",
    },
)


def choose_blob_url(chosen: str, *, beside: str) -> str:
    """Return where artifacts lie: at the chosen address, or where the records beside them do.

    Machines that share a database may share nothing else, and what is kept in memory ends with
    its process; everywhere else the default is files in the state directory.
    """
    scheme = urlsplit(beside).scheme
    return chosen or {"memory": "memory://"}.get(scheme) or (beside if scheme in _SERVERS else "")


def open_blob_store(url: str, options: BlobStoreOptions) -> BlobStore:
    """Return the store of blobs at an address; without one, files in the state directory.

    Raises:
        UsageError: no kind of store is known for the scheme, or the rest means nothing to it.
        MissingExtra: the package for buckets is not installed.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    return kind.open(address, options)


def find_tenant_blob_url(url: str, tenant: str) -> str:
    """Return where a tenant keeps its artifacts, if the operator's are at this address.

    Raises:
        UsageError: the address itself names this tenant.
    """
    kind, address = _KINDS.find(url or _DEFAULT)
    return url if kind.tenant_url is None else kind.tenant_url(address, tenant)


def list_blob_places(url: str, *, base_dir: Path) -> tuple[Path, ...]:
    """Return where on this machine the bytes are, tenants' too, which no tool may see."""
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.place is None:
        return ()
    place = kind.place(address, base_dir)
    apart = find_tenant_blob_url(url, "any")
    # Of a database file the directory around it holds those of tenants, and perhaps much else.
    is_apart = kind.tenant_url is not None and bool(address.path)
    return (place, resolve_directory(urlsplit(apart), base_dir).parent) if is_apart else (place,)


async def migrate_blob_store(url: str, *, base_dir: Path, is_dry: bool) -> SchemaStatus | None:
    """Bring the schema of a store up to date; `None` for one that needs no migration by hand."""
    kind, address = _KINDS.find(url or _DEFAULT)
    return None if kind.migrate is None else await kind.migrate(address, base_dir, is_dry)


async def grant_blob_role(url: str, role: str) -> None:
    """Let a role of the database at an address use the contents there, where it has roles."""
    kind, address = _KINDS.find(url or _DEFAULT)
    if kind.grant is not None:
        await kind.grant(address, role)


async def erase_blobs(url: str, tenant: str, options: BlobStoreOptions) -> None:
    """Remove all contents that a tenant has below an address that it may share with others.

    Raises:
        StorageError: the place cannot be reached or written; what is left is removed by another
            call.
    """
    own = find_tenant_blob_url(url, tenant)
    kind, address = _KINDS.find(own or _DEFAULT)
    if kind.erase is not None:
        await kind.erase(address, options)
        return
    store = kind.open(address, options)
    try:
        await store.open()
        batch: list[str] = []
        async for info in store.scan():
            # In a place that all share, nobody else's.
            if (split_key(info.key) or ("",))[0] == tenant:
                batch.append(info.key)
            if len(batch) == _ERASED_AT_ONCE:
                await store.remove(batch)
                batch = []
        await store.remove(batch)
        for name in await store.uploads() if kind.tenant_url is not None else ():
            await store.remove_upload(name)
    finally:
        await store.close()
