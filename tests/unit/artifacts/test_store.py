"""Saving, finding, versions, quotas, retention and deletion."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from holdfast.artifacts import (
    ArtifactActor,
    ArtifactFilter,
    ArtifactOptions,
    ArtifactRules,
    ArtifactStore,
    collect,
    expire,
    verify,
)
from holdfast.errors import (
    ArtifactDamaged,
    ArtifactQuotaExceeded,
    InvalidCursor,
    NotFound,
    UsageError,
)
from holdfast.sessions.events import SessionCreated

GIVEN = ArtifactOptions


async def test_versions_are_linked_and_the_same_content_is_the_same_version(store):
    one = await store.save("a/report.md", b"one")
    again = await store.save("a/report.md", b"one")
    two = await store.save("a/report.md", b"two")
    assert again == one
    assert (one.version, one.previous) == (1, "")
    assert (two.version, two.previous) == (2, one.id)
    assert await store.versions(one.id) == [two, one]
    assert (await store.list()).items == (two,)
    assert (await store.list(ArtifactFilter(has_old_versions=True))).items == (two, one)
    await store.delete(two.id)
    assert (await store.list()).items == (one,)
    three = await store.save("a/report.md", b"three")
    assert three.previous == one.id


async def test_what_is_known_of_a_file_is_kept(store):
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    options = GIVEN(kind="agent_output", tags=("plot", "draft"), metadata={"dpi": "90"})
    saved = await store.save("figure", png, options=options)
    assert saved.media_type == "image/png"
    assert saved.digest == hashlib.sha256(png).hexdigest()
    assert (saved.size, saved.kind, saved.scope) == (108, "agent_output", "user")
    assert (saved.tags, saved.metadata) == (("plot", "draft"), {"dpi": "90"})
    assert await store.get(saved.id) == saved


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ArtifactFilter(), ["c.bin", "b.txt", "a.txt"]),
        (ArtifactFilter(name=".TXT"), ["b.txt", "a.txt"]),
        (ArtifactFilter(tag="red"), ["b.txt"]),
        (ArtifactFilter(tag="re"), []),
        (ArtifactFilter(tag="RED"), []),
        (ArtifactFilter(kind="system"), ["c.bin"]),
        (ArtifactFilter(min_size=3), ["c.bin", "b.txt"]),
        (ArtifactFilter(max_size=2), ["a.txt"]),
        (ArtifactFilter(media_type="text/plain"), ["b.txt", "a.txt"]),
        (ArtifactFilter(scope="tenant"), ["c.bin"]),
    ],
)
async def test_artifacts_are_found_by_what_is_known_of_them(store, wanted, names):
    await store.save("a.txt", b"aa")
    await store.save("b.txt", b"bbb", options=GIVEN(tags=("red", "blue")))
    await store.save("c.bin", b"\0" * 4, options=GIVEN(kind="system", scope="tenant"))
    assert [one.name for one in (await store.list(wanted)).items] == names


async def test_artifacts_are_found_by_time_and_in_pages(store, clock):
    times = []
    for number in range(5):
        times.append(clock.now())
        await store.save(f"f{number}", bytes([number]))
        clock.advance(10)
    between = ArtifactFilter(since=times[1], until=times[3])
    assert [one.name for one in (await store.list(between)).items] == ["f3", "f2", "f1"]
    found, cursor = [], ""
    while True:
        page = await store.list(limit=2, cursor=cursor)
        found += [one.name for one in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
    assert found == ["f4", "f3", "f2", "f1", "f0"]
    for wrong in ("x", "x" * 500, "WyJhIiwxXQ=="):
        with pytest.raises(InvalidCursor):
            await store.list(cursor=wrong)


@pytest.mark.parametrize(
    "name",
    ["", " ", "/etc/passwd", "../x", "a/../../x", "a//b", "x/", "..", ".", "a\0b", "a\nb",
     "C:/x", "..\\..\\x", "\u202egnp.exe", "a\u200bb", "\ud800", "x" * 256, "é" * 128, " a", 7],
)  # fmt: skip
async def test_a_name_that_plays_tricks_is_refused_and_nothing_is_kept(store, name):
    with pytest.raises(UsageError):
        await store.save(name, b"x")
    assert (await store.list()).items == ()


@pytest.mark.parametrize(
    "options",
    [
        GIVEN(tags=("x",) * 65),
        GIVEN(tags=("x" * 101,)),
        GIVEN(tags=("",)),
        GIVEN(tags=("a\nb",)),
        GIVEN(metadata={"k": "v" * 20_000}),
        GIVEN(metadata={str(n): "v" for n in range(5_000)}),
        GIVEN(media_type="no type"),
        GIVEN(media_type="text/html\r\nX-Evil: 1"),
        GIVEN(sha256="zz"),
        GIVEN(ttl_s=0.0),
        GIVEN(ttl_s=float("nan")),
        GIVEN(kind="other"),  # type: ignore[arg-type]
        GIVEN(scope="galaxy"),  # type: ignore[arg-type]
        GIVEN(scope="project"),
        GIVEN(scope="session"),
    ],
)
async def test_what_cannot_be_kept_is_refused_before_anything_happens(store, options):
    with pytest.raises(UsageError):
        await store.save("x", b"x", options=options)
    assert (await store.list()).items == ()


async def test_a_content_of_another_digest_is_refused(store):
    right = hashlib.sha256(b"x").hexdigest()
    assert (await store.save("x", b"x", options=GIVEN(sha256=right))).digest == right
    with pytest.raises(UsageError):
        await store.save("x", b"y", options=GIVEN(sha256=right))
    assert len(await store.versions((await store.list()).items[0].id)) == 1
    assert (await collect(store)).blobs_removed == 0
    assert len([info async for info in store.services.blobs.scan()]) == 1


@pytest.mark.parametrize("data", ["text", None, 7])
async def test_what_is_no_content_is_refused(store, data):
    with pytest.raises(UsageError):
        await store.save("x", data)

    async def pieces():
        yield data

    with pytest.raises(UsageError):
        await store.save("x", pieces())


async def test_quotas_hold_exactly_also_for_many_at_once(open_artifacts):
    async with open_artifacts(rules=ArtifactRules(tenant_bytes=100)) as store:
        results = await asyncio.gather(
            *[store.save(f"f{n}", bytes([n]) * 20) for n in range(10)], return_exceptions=True
        )
        saved = [one for one in results if not isinstance(one, BaseException)]
        assert len(saved) == 5
        assert all(isinstance(one, ArtifactQuotaExceeded) for one in results if one not in saved)
        await store.delete(saved[0].id)
        await store.save("again", b"x" * 20)
        assert (await store.usage()).bytes == 100


async def test_a_session_has_a_quota_of_its_own(open_artifacts):
    async with open_artifacts(rules=ArtifactRules(session_bytes=10, largest_bytes=50)) as store:
        for name in ("ses_a", "ses_b"):
            created = SessionCreated(
                slug=name, project_id="p", directory="/", title="", version="1"
            )
            await store.services.journal.append(name, [created], must_be_new=True)
            actor = ArtifactActor(tenant="acme", subject=f"session:{name}", session_id=name)
            mine = store.act_for(actor)
            await mine.save("x", b"x" * 10)
            with pytest.raises(ArtifactQuotaExceeded):
                await mine.save("y", b"y")
        await store.save("of the user", b"x" * 50)
        with pytest.raises(ArtifactQuotaExceeded):
            await store.save("too large", b"x" * 51)


async def test_retention_removes_what_is_too_old_or_too_much(open_artifacts, clock):
    async with open_artifacts(rules=ArtifactRules(ttl_s=100, keep_versions=2)) as store:
        for number in range(4):
            clock.advance(1)
            newest = await store.save("log", bytes([number]))
        short = await store.save("short", b"s", options=GIVEN(ttl_s=10))
        assert await expire(store) == 2
        assert [one.version for one in await store.versions(newest.id)] == [4, 3]
        clock.advance(20)
        with pytest.raises(NotFound):
            await store.load(short.id)
        assert "short" not in [one.name for one in (await store.list()).items]
        clock.advance(100)
        report = await collect(store)
        assert report.artifacts_expired == 3
        assert (await store.list()).items == ()
        assert [info async for info in store.services.blobs.scan()] == []
        assert (await store.usage()).bytes == 0


async def test_a_changed_file_is_noticed_on_every_read_and_named_by_verify(store, tmp_path):
    saved = await store.save("x", b"x" * 3_000_000)
    other = await store.save("y", b"y")
    [path] = [p for p in (tmp_path / "artifacts" / "blobs").rglob(saved.digest)]
    whole = path.read_bytes()
    for damaged in (
        whole[:-1],
        whole[:100],
        whole[:10],
        b"",
        whole + b"\0",
        whole[:50] + b"!" + whole[51:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactDamaged):
            await store.load(saved.id)
        with pytest.raises(ArtifactDamaged):
            assert [piece async for piece in store.stream(saved.id)]
        assert [one.artifact_id for one in await verify(store)] == [saved.id]
    path.unlink()
    with pytest.raises(ArtifactDamaged):
        await store.load(saved.id)
    assert [one.artifact_id for one in await verify(store)] == [saved.id]
    path.write_bytes(whole)
    assert await verify(store) == []
    assert await store.load(other.id) == b"y"


async def test_a_collection_beside_saves_removes_nothing_that_is_named(open_artifacts):
    async with open_artifacts() as store, open_artifacts() as other:

        async def save_and_drop(number):
            # The same content again and again: named, dropped, named.
            saved = await store.save(f"f{number % 3}", bytes([number % 2]) * 1_000)
            assert await store.load(saved.id)

        collections = [collect(other) for _ in range(10)]
        await asyncio.gather(*[save_and_drop(number) for number in range(30)], *collections)
        assert await verify(store) == []


async def test_the_upload_of_a_living_process_is_left_alone(open_artifacts):
    async with open_artifacts() as store, open_artifacts() as other:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slowly():
            yield b"x" * 2_000_000
            begun.set()
            await go_on.wait()
            yield b"y"

        saving = asyncio.create_task(store.save("slow", slowly()))
        async with asyncio.timeout(30):
            await begun.wait()
            assert (await collect(other)).uploads_removed == 0
            go_on.set()
            saved = await saving
        assert len(await store.load(saved.id)) == 2_000_001


async def test_what_is_too_large_for_memory_is_not_loaded(store: ArtifactStore, monkeypatch):
    saved = await store.save("x", b"x" * 100)
    monkeypatch.setattr("holdfast.artifacts.store.LARGEST_LOAD", 50)
    with pytest.raises(UsageError):
        await store.load(saved.id)
    assert b"".join([piece async for piece in store.stream(saved.id)]) == b"x" * 100
