"""Who may do what: owners, scopes, grants with an end, signed links, and what is noted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.artifacts import (
    ArtifactActor,
    ArtifactOptions,
    ArtifactSharing,
    LinkClaim,
    sign_link,
    verify_link,
)
from holdfast.errors import ArtifactDenied, ConfigError, LinkRefused, NotFound, UsageError

CLAIM = LinkClaim(
    link_id="lnk_1", tenant="acme", artifact_id="art_1", digest="0" * 64, expires_at=100.0
)
KEY = b"k" * 32


def ann(**fields: object) -> ArtifactActor:
    return ArtifactActor(tenant="acme", subject="ann", **fields)  # type: ignore[arg-type]


async def test_what_belongs_to_one_does_not_exist_for_others(store):
    saved = await store.save("mine", b"mine")
    for stranger in (
        ann(),
        ann(user="else", session_id="ses_x", project_id="p"),
        ArtifactActor(tenant="other", subject="owner", is_admin=True),
    ):
        theirs = store.act_for(stranger)
        for ask in (theirs.get, theirs.load, theirs.delete, theirs.versions):
            with pytest.raises(NotFound):
                await ask(saved.id)
        assert (await theirs.list()).items == ()


@pytest.mark.parametrize(
    ("scope", "actor", "can_write"),
    [
        ("user", ann(user="local"), True),
        ("project", ann(project_id="p1"), True),
        ("tenant", ann(), False),
    ],
)
async def test_a_scope_lets_in_who_belongs_to_it(store, scope, actor, can_write):
    maker = store.act_for(
        ArtifactActor(tenant="acme", subject="bob", user="local", project_id="p1")
    )
    saved = await maker.save("x", b"x", options=ArtifactOptions(scope=scope))
    theirs = store.act_for(actor)
    assert await theirs.load(saved.id) == b"x"
    assert (await theirs.list()).items == (saved,)
    with pytest.raises(ArtifactDenied):
        await ArtifactSharing(theirs).grant(saved.id, "eve", expires_in_s=5)
    if can_write:
        await theirs.delete(saved.id)
    else:
        with pytest.raises(ArtifactDenied):
            await theirs.delete(saved.id)


async def test_given_access_holds_until_it_ends_and_every_use_is_noted(store, clock):
    saved = await store.save("x", b"x")
    sharing, theirs = ArtifactSharing(store), store.act_for(ann())
    await sharing.grant(saved.id, "ann", "read", expires_in_s=60)
    assert await theirs.load(saved.id) == b"x"
    with pytest.raises(ArtifactDenied):
        await theirs.delete(saved.id)
    assert [one.subject for one in await sharing.grants(saved.id)] == ["ann"]
    clock.advance(61)
    with pytest.raises(NotFound):
        await theirs.load(saved.id)
    assert await sharing.grants(saved.id) == []
    await sharing.grant(saved.id, "ann", "admin", expires_in_s=60)
    await ArtifactSharing(theirs).grant(saved.id, "eve", expires_in_s=5)
    await sharing.revoke(saved.id, subject="ann")
    with pytest.raises(NotFound):
        await theirs.load(saved.id)
    events = await store.services.journal.read_all("system")
    told = [one.kind for one in events if one.kind.startswith("artifact.")]
    assert told == [
        "artifact.place_claimed",
        "artifact.saved",
        "artifact.shared",
        "artifact.accessed",
        "artifact.shared",
        "artifact.shared",
        "artifact.unshared",
    ]


async def test_a_link_reads_one_version_until_it_ends_or_is_withdrawn(store, clock):
    saved = await store.save("x", b"shared")
    sharing = ArtifactSharing(store)
    anyone = ArtifactSharing(store.act_for(ann()))
    link = await sharing.share(saved.id, expires_in_s=60)
    assert (await anyone.find_shared(link.token)).id == saved.id
    assert b"".join([piece async for piece in anyone.stream_shared(link.token)]) == b"shared"
    await store.save("x", b"a newer one")
    assert (await anyone.find_shared(link.token)).id == saved.id
    await sharing.revoke(saved.id, link_id=link.link_id)
    with pytest.raises(LinkRefused):
        await anyone.find_shared(link.token)
    second = await sharing.share(saved.id, expires_in_s=60)
    clock.advance(60)
    with pytest.raises(LinkRefused):
        await anyone.find_shared(second.token)
    third = await sharing.share(saved.id, expires_in_s=60)
    await store.delete(saved.id)
    with pytest.raises(LinkRefused):
        assert [piece async for piece in anyone.stream_shared(third.token)]
    elsewhere = ArtifactActor(tenant="other", subject="x", is_admin=True)
    with pytest.raises(LinkRefused):
        await ArtifactSharing(store.act_for(elsewhere)).find_shared(third.token)


async def test_links_need_a_key_and_times_that_can_be_meant(open_artifacts):
    async with open_artifacts(link_key=b"") as store:
        saved = await store.save("x", b"x")
        sharing = ArtifactSharing(store)
        with pytest.raises(ConfigError):
            await sharing.share(saved.id, expires_in_s=60)
        for seconds in (0, -1, float("nan"), float("inf"), 1e12):
            with pytest.raises(UsageError):
                await sharing.grant(saved.id, "ann", expires_in_s=seconds)
        for subject in ("", "x" * 201):
            with pytest.raises(UsageError):
                await sharing.grant(saved.id, subject, expires_in_s=5)
        with pytest.raises(UsageError):
            await sharing.revoke(saved.id)


def test_a_link_says_what_was_signed():
    token = sign_link(CLAIM, KEY)
    assert verify_link(token, KEY, now=99.9) == CLAIM
    for now, key in itertools.product((99.0, 100.0), (KEY, b"other" * 8)):
        if (now, key) != (99.0, KEY):
            with pytest.raises(LinkRefused):
                verify_link(token, key, now=now)


@given(st.data())
def test_a_link_that_was_changed_anywhere_is_refused(data):
    token = sign_link(CLAIM, KEY)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(exclude_characters=token[place]))
    with pytest.raises(LinkRefused):
        verify_link(token[:place] + other + token[place + 1 :], KEY, now=0.0)


@given(st.text(max_size=300))
def test_no_other_text_is_a_link(text):
    with pytest.raises(LinkRefused):
        verify_link(text, KEY, now=0.0)
