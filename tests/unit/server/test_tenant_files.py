"""Files of tenants at an address of the operator's choice: apart, and gone with their tenant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import OWNER, PostgresServer
from served import Running, running
from test_tenants import add_tenant

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from s3_server import serve_503, serve_s3

from holdfast.errors import NotFound
from holdfast.runtime import Runtime, open_tenant

NAMES = ("default", "one", "two")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with serve_s3() as address:
        yield address


@pytest.fixture(params=["file", "sqlite", "postgresql", "s3"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, s3: str
) -> dict[str, str]:
    if request.param == "postgresql":
        return {"artifacts.url": postgres.url(postgres.make_database(), role=OWNER)}
    if request.param == "s3":
        place = f"s3://holdfast/{tmp_path.name}"
        return {"artifacts.url": place, "artifacts.endpoint_url": s3, "artifacts.region": "x"}
    return {"artifacts.url": f"{request.param}://{tmp_path / 'files'}"}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def find_operator(server: Running) -> Runtime:
    return next(one for one in server.app.runtimes.list_open() if one.tenant == "default")


async def list_contents(runtime: Runtime) -> list[str]:
    """Return what is really there, not only listed."""
    store = await runtime.artifacts.opened()
    return [info.key async for info in store.services.blobs.scan()]


async def test_tenants_share_an_address_and_go_without_the_others_files(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    async with running(state, settings=settings) as server:
        operator = find_operator(server)
        for name in NAMES[1:]:
            await add_tenant(server, name)
        saved = {}
        for name in NAMES:
            async with open_tenant(operator, name) as runtime:
                store = await runtime.artifacts.opened()
                saved[name] = (await store.save("a.txt", f"of {name}".encode())).id
                # No program of one may look into the files of another.
                is_local = (tmp_path / "files").exists()
                assert is_local == (f"{tmp_path}/files/tenants" in runtime.confinement.hidden)
        # A collection by one leaves what the others have.
        status, _ = await server.ask("POST", "/v1/artifacts/collect", {})
        assert status == 200
        status, _ = await server.ask("DELETE", "/v1/tenants/one?confirm=one")
        assert status == 200
        for name in ("default", "two"):
            async with open_tenant(operator, name) as runtime:
                store = await runtime.artifacts.opened()
                assert await store.load(saved[name]) == f"of {name}".encode()
                [key] = await list_contents(runtime)
                assert key.startswith(f"{name}/")
        with pytest.raises(NotFound):
            async with open_tenant(operator, "one"):
                pass
        assert not [path for path in (tmp_path / "files").rglob("*") if "one" in path.parts]


async def test_a_tenant_whose_bucket_is_away_is_not_let_in_and_can_be_deleted_again(
    tmp_path: Path, s3: str
) -> None:
    bucket = {"artifacts.url": "s3://holdfast/away", "artifacts.region": "x"}
    with serve_503() as busy:
        async with running(tmp_path, settings=bucket | {"artifacts.endpoint_url": busy}) as server:
            headers = await add_tenant(server, "one")
            status, found = await server.ask("DELETE", "/v1/tenants/one?confirm=one")
            assert (status, found["code"]) == (503, "storage.unavailable")
            status, _ = await server.ask("GET", "/v1/runs", headers=headers)
            assert status == 401
    async with running(tmp_path, settings=bucket | {"artifacts.endpoint_url": s3}) as server:
        status, found = await server.ask("DELETE", "/v1/tenants/one?confirm=one")
        assert (status, found["state"]) == (200, "deleted")
