"""Policies are replaced whole or not at all, and everybody is told."""

import asyncio
import os
import signal

import pytest

from holdfast.errors import PolicyInvalid, StorageError
from holdfast.journal import SYSTEM_SESSION, Journal, MemoryStore
from holdfast.policy import CallRequest, PolicyStore, decide
from holdfast.policy.file_events import PolicyReloadRequested, make_violation
from holdfast.settings import UnvouchedSettings

REQUEST = CallRequest(permission="bash", targets=("ls",), target_kind="command", default="allow")


@pytest.fixture
async def journal():
    async with Journal(MemoryStore()) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools.yaml").write_text("agents: {a: {allowed_tools: [bash]}}\n")
    return tmp_path


async def facts(journal):
    return [event.decode() for event in await journal.read(SYSTEM_SESSION)]


def judge(bundle):
    return decide(REQUEST, bundle.find_ceiling("a"), policy_version=bundle.version)


async def test_load_and_reload_are_journalled_with_their_versions(folder, journal):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    before = store.bundle
    (folder / "tools.yaml").write_text("agents: {a: {allowed_tools: [read]}}\n")
    done = await store.reload(asked_by="test")
    assert done.is_accepted
    assert (done.previous, done.version) == (before.version, store.bundle.version)
    loaded, again = await facts(journal)
    assert (loaded.kind, again.kind) == ("policy.loaded", "policy.loaded")
    assert (again.previous, again.version, again.asked_by) == (done.previous, done.version, "test")
    # A call that began before keeps what it began with.
    assert judge(before).action == "allow"
    assert judge(store.bundle).action == "deny"


async def test_bad_file_keeps_the_old_policies_and_says_so(folder, journal):
    store = PolicyStore(folder, journal=journal)
    heard = []
    store.on_change(heard.append)
    await store.load()
    before = store.bundle
    (folder / "tools.yaml").write_text("agents: [\n")
    done = await store.reload()
    assert not done.is_accepted
    assert store.bundle is before
    assert heard == []
    _, rejected = await facts(journal)
    assert rejected.kind == "policy.rejected"
    assert rejected.kept_version == before.version
    assert rejected.mistakes == done.mistakes
    assert "tools.yaml:2" in done.mistakes[0]
    (folder / "tools.yaml").write_text("")
    assert (await store.reload()).is_accepted
    assert heard == [store.bundle]


async def test_first_load_of_bad_files_is_refused(folder):
    (folder / "tools.yaml").write_text("agents: [\n")
    store = PolicyStore(folder)
    with pytest.raises(PolicyInvalid):
        await store.load()
    assert not store.bundle.network_rules.allow_net


async def test_hangup_reloads(folder):
    store = PolicyStore(folder)
    await store.load()
    (folder / "tools.yaml").write_text("")
    changed = asyncio.Event()
    store.on_change(lambda _bundle: changed.set())
    stop = store.reload_on_hangup()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(30):
            await changed.wait()
    finally:
        stop()
    assert judge(store.bundle).action == "allow"


async def test_request_in_the_journal_reloads(folder, journal):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    (folder / "tools.yaml").write_text("agents: {a: {allowed_tools: []}}\n")
    changed = asyncio.Event()
    store.on_change(lambda _bundle: changed.set())
    following = asyncio.create_task(store.follow_requests())
    try:
        async with asyncio.timeout(30):
            for directory in ("/elsewhere", str(folder)):
                await journal.append(SYSTEM_SESSION, [PolicyReloadRequested(directory=directory)])
            await changed.wait()
    finally:
        following.cancel()
    assert judge(store.bundle).action == "deny"


async def test_many_requests_at_once_are_all_read(folder, journal):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    (folder / "tools.yaml").write_text("agents: {a: {allowed_tools: []}}\n")
    elsewhere = [PolicyReloadRequested(directory="/elsewhere")] * 199
    here = PolicyReloadRequested(directory=str(folder))
    await journal.append(SYSTEM_SESSION, [*elsewhere, here])
    await store.look_for_reloads()
    assert judge(store.bundle).action == "deny"
    count = len(await facts(journal))
    await store.look_for_reloads()
    await store.look_for_reloads()
    assert len(await facts(journal)) == count


async def test_facts_of_other_processes_are_followed_and_told_only_where_they_change_something(
    folder, journal
):
    async with Journal(MemoryStore()) as operators:
        one, two = (PolicyStore(folder, journal=j) for j in (operators, journal))
        two.follow_also(operators)
        await one.load()
        await two.load()
        await one.reload(asked_by="nothing changed")
        await two.look_for_reloads()
        assert [fact.asked_by for fact in await facts(journal)] == ["start"]
        (folder / "tools.yaml").write_text("agents: [\n")
        await one.reload()
        await two.look_for_reloads()
        assert two.refused == one.refused == two.status.refused != ()
        await one.reload()
        await two.look_for_reloads()
        (folder / "tools.yaml").write_text("agents: {a: {allowed_tools: [bash]}}\n")
        await one.reload()
        await two.look_for_reloads()
        assert two.refused == one.refused == ()
        # The files are those of the start again: nothing to tell.
        assert [fact.kind for fact in await facts(journal)] == ["policy.loaded"]
        (folder / "tools.yaml").write_text("")
        await one.reload(asked_by="operator")
        await two.look_for_reloads()
        assert (await facts(journal))[-1].asked_by == "operator"
        assert judge(two.bundle).action == "allow"


class FailingStore(MemoryStore):
    is_failing = False

    async def heads(self, session_id=None):
        if self.is_failing:
            self.is_failing = False
            raise StorageError(path="here", detail="the disk is full")
        return await super().heads(session_id)


async def test_following_survives_a_store_that_fails_and_ends_with_close(folder):
    async with Journal(FailingStore()) as journal:
        store = PolicyStore(folder, journal=journal)
        await store.load()
        store.begin_following()
        store.begin_following()
        journal.store.is_failing = True
        changed = asyncio.Event()
        store.on_change(lambda _bundle: changed.set())
        await journal.append(SYSTEM_SESSION, [PolicyReloadRequested(directory=str(folder))])
        async with asyncio.timeout(30):
            await changed.wait()
        await store.close()
        await store.close()


async def test_candidate_decides_beside_the_policies_in_force(folder, journal, tmp_path_factory):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    other = tmp_path_factory.mktemp("candidate")
    (other / "tools.yaml").write_text("agents: {a: {allowed_tools: [read]}}\n")
    candidate = await store.watch_candidate(other)
    decision = judge(store.bundle)
    assert store.shadow is not None
    for _ in range(3):
        change = store.shadow.watch(REQUEST, decision, agent="a")
    assert (change.before, change.after) == ("allow", "deny")
    assert store.shadow.watch(REQUEST, decision, agent="b") is None
    assert (store.shadow.judged, store.shadow.differed) == (4, 3)
    assert await store.write_differences() == 1
    assert await store.write_differences() == 0
    fact = (await facts(journal))[-1]
    assert fact.kind == "policy.differed"
    assert (fact.decided, fact.candidate) == ("allow", "deny")
    assert fact.candidate_version == candidate.version
    store.stop_watching()
    assert store.shadow is None


async def test_wrong_candidate_changes_nothing(folder, tmp_path_factory):
    store = PolicyStore(folder)
    other = tmp_path_factory.mktemp("candidate")
    (other / "tools.yaml").write_text("agents: [\n")
    with pytest.raises(PolicyInvalid):
        await store.watch_candidate(other)
    assert store.shadow is None


async def test_candidate_is_read_again_with_a_reload(folder, journal, tmp_path_factory):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    other = tmp_path_factory.mktemp("candidate")
    (other / "tools.yaml").write_text("agents: {a: {allowed_tools: [read]}}\n")
    first = await store.watch_candidate(other)
    (other / "tools.yaml").write_text("agents: {a: {allowed_tools: [bash]}}\n")
    assert (await store.reload()).is_accepted
    assert store.shadow.version != first.version
    assert store.shadow.watch(REQUEST, judge(store.bundle), agent="a") is None


async def test_candidate_that_became_wrong_is_told_and_the_last_good_one_goes_on(
    folder, journal, tmp_path_factory
):
    store = PolicyStore(folder, journal=journal)
    await store.load()
    other = tmp_path_factory.mktemp("candidate")
    (other / "tools.yaml").write_text("agents: {a: {allowed_tools: [read]}}\n")
    good = await store.watch_candidate(other)
    (other / "tools.yaml").write_text("agents: [\n")
    assert (await store.reload(asked_by="test")).is_accepted
    _, rejected, loaded = await facts(journal)
    assert (rejected.kind, loaded.kind) == ("policy.rejected", "policy.loaded")
    assert (rejected.directory, rejected.asked_by) == (str(other), "test")
    assert rejected.kept_version == store.shadow.version == good.version
    assert "tools.yaml:2" in rejected.mistakes[0]
    assert store.shadow.watch(REQUEST, judge(store.bundle), agent="a").after == "deny"


async def test_policies_that_a_command_could_have_made_are_refused_until_vouched_for(tmp_path):
    folder = tmp_path / "work" / "policies"
    folder.parent.mkdir()
    unvouched = UnvouchedSettings(tmp_path / "state", folders=[folder])
    store = PolicyStore(folder, unvouched=unvouched)
    before = await store.load()
    gap = unvouched.begin([str(folder.parent)])
    folder.mkdir()
    (folder / "tools.yaml").write_text("agents: {a: {allowed_tools: []}}\n")
    gap.end()
    done = await store.reload()
    assert not done.is_accepted
    assert f"holdfast config trust {folder}" in done.mistakes[0]
    assert store.bundle is before
    with pytest.raises(PolicyInvalid, match="could have made it"):
        await PolicyStore(folder, unvouched=unvouched).load()
    assert unvouched.accept(folder)
    assert (await store.reload()).is_accepted
    assert judge(store.bundle).action == "deny"


async def test_refusal_by_the_ceiling_is_a_violation(folder):
    store = PolicyStore(folder)
    bundle = await store.load()
    request = CallRequest(permission="write", targets=("x",), target_kind="path", default="allow")
    refused = decide(request, bundle.find_ceiling("a"), policy_version=bundle.version)
    fact = make_violation(request, refused, agent="a")
    assert fact is not None
    assert (fact.permission, fact.targets, fact.policy_version) == ("write", ("x",), bundle.version)
    assert make_violation(REQUEST, judge(bundle)) is None
