"""What is kept, where and for how long: storage, artifacts, sessions, state, memories."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from holdfast.settings.section import SettingsSection, name_variable
from holdfast.settings.values import (
    AnyCase,
    Directory,
    Duration,
    Line,
    Lines,
    OptionalCount,
    OptionalDuration,
    StoreUrl,
    Switch,
    Url,
)

Durability = Annotated[Literal["process", "power"], AnyCase]
OnBusy = Annotated[Literal["queue", "reject", "interrupt", "steer"], AnyCase]
RememberScope = Annotated[Literal["off", "session", "user", "project"], AnyCase]


class RetentionSettings(SettingsSection):
    """How long records are kept; `none` keeps them without limit."""

    message_ttl_s: OptionalDuration = Field(
        default=None, description="Remove messages that are older than this."
    )
    event_ttl_s: OptionalDuration = Field(
        default=None, description="Remove events of ended sessions that are older than this."
    )
    session_ttl_s: OptionalDuration = Field(
        default=None, description="Expire sessions that no process touched for this long."
    )
    max_messages: OptionalCount = Field(
        default=None, description="Keep at most this many messages per session."
    )
    max_events: OptionalCount = Field(
        default=None, description="Keep at most this many events per session."
    )
    max_sessions: OptionalCount = Field(
        default=None, description="Keep at most this many archived sessions."
    )


class StorageSettings(SettingsSection):
    """Where records are kept, and how safely."""

    state_dir: Directory = Field(
        description="Directory of the journal and everything else that is kept; by default "
        "`$XDG_STATE_HOME/holdfast` or `~/.local/state/holdfast`.",
        json_schema_extra=name_variable("AGENT_STATE_DIR"),
    )
    url: StoreUrl = Field(
        default="",
        description="Address of the store that keeps the records: `sqlite:///DIRECTORY` for the "
        "file `journal.db` in a directory (its absolute path), "
        "`postgresql://USER@HOST/DATABASE` for a database that many machines share (extra "
        "`postgres`), `memory://` to keep nothing, or a scheme that an installed package adds; "
        "without it, SQLite in `state_dir`. A project's file cannot set it.",
    )
    wakeups_url: StoreUrl = Field(
        default="",
        description="Address by which workers take sessions from Postgres, where it is not "
        "`url`: one that goes around a pooler, or of a role that sees no records "
        "(`holdfast storage grant --wakeups`). A project's file cannot set it.",
    )
    durability: Durability = Field(
        default="process",
        description="What a finished step survives: `process` the death of the process, "
        "`power` also a power cut.",
    )
    retention: RetentionSettings = Field(default_factory=RetentionSettings)


class ArtifactSettings(SettingsSection):
    """Where files that agents, tools and people leave are kept, and how much of them."""

    url: StoreUrl = Field(
        default="",
        description="Address of the place: `file:///DIRECTORY`, `sqlite:///DIRECTORY` (the file "
        "`artifacts.db`), `postgresql://USER@HOST/DATABASE` (extra `postgres`), `memory://`, or a "
        "bucket: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` (extra "
        "`s3`). Without it, the database of `storage.url` where that names Postgres, else "
        "`artifacts` in the state directory. A project's file cannot set it.",
    )
    endpoint_url: Url | None = Field(
        default=None,
        description="Address of the server of the bucket, where it is not the vendor's own. A "
        "project's file cannot set it.",
    )
    region: Line | None = Field(default=None, description="Region of the bucket.")
    compress: Switch = Field(
        default=True,
        description="Compress contents above 4 KB with zstd, where the extra `artifacts` is "
        "installed.",
    )
    session_bytes: OptionalCount = Field(
        default=None, description="Most bytes of artifacts that one session may keep."
    )
    tenant_bytes: OptionalCount = Field(
        default=None, description="Most bytes of artifacts that all sessions may keep together."
    )
    largest_bytes: OptionalCount = Field(
        default=None, description="Most bytes of a single artifact."
    )
    ttl_s: OptionalDuration = Field(
        default=None, description="Remove artifacts that are older than this."
    )
    keep_versions: OptionalCount = Field(
        default=None, description="Keep at most this many versions of each file."
    )


class SessionSettings(SettingsSection):
    """How turns of one session wait for each other."""

    lease_ttl_s: Duration = Field(
        default=30.0,
        description="A writer that gives no sign of life for this long loses the session.",
    )
    on_busy: OnBusy = Field(
        default="queue", description="What a turn does when the session is busy."
    )


_PAIR = re.compile(r"[^=]{1,100}=[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_COUNTED = re.compile(r"[^=]{1,100}=[1-9][0-9]{0,5}")


def _check_counts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _COUNTED.fullmatch(value):
            raise ValueError("each is AGENT=NUMBER, such as build=4")
    return values


def _check_pairs(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _PAIR.fullmatch(value):
            raise ValueError("each is AGENT=WORD, such as reviewer=review")
    return values


class WorkerSettings(SettingsSection):
    """How runs that any process may take are shared among workers; the same for all of them."""

    queues: Annotated[Lines, AfterValidator(_check_pairs)] = Field(
        default=(),
        description="Which agents only workers of a queue execute, such as `reviewer=review` "
        "(`holdfast worker --queues review`): a service of its own, with its own credentials "
        "and policies.",
    )
    most_per_agent: Annotated[Lines, AfterValidator(_check_counts)] = Field(
        default=(),
        description="How many runs of an agent all workers execute at once, such as `build=4`.",
    )
    most_runs: OptionalCount = Field(
        default=None, description="How many sessions all workers go on with at once."
    )

    def find_queue(self, agent: str) -> str:
        """Return the queue whose workers alone execute an agent; empty for all others."""
        return dict(one.split("=", 1) for one in self.queues).get(agent, "")

    def find_most(self, agent: str) -> int | None:
        """Return how many runs of an agent may be executed at once; `None` is without limit."""
        found = dict(one.split("=", 1) for one in self.most_per_agent).get(agent)
        return None if found is None else int(found)


class StateSettings(SettingsSection):
    """What agents keep between runs."""

    max_value_bytes: int = Field(
        default=256 * 1024,
        ge=1,
        le=64 * 1024 * 1024,
        description="How large one value of the state may be, as JSON.",
    )
    max_keys: int = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description="How many keys one scope of the state may have (of one user, one agent, one "
        "session, …).",
    )
    history_ttl_s: OptionalDuration = Field(
        default=None,
        description="Remove values that were replaced longer ago than this; what is set now, and "
        "which versions there were, stays.",
    )
    keep_versions: OptionalCount = Field(
        default=None, description="Keep the value of at most this many versions of a key."
    )


class MemorySettings(SettingsSection):
    """What is remembered, how it is found, and when it is shown to agents."""

    embedder: Line = Field(
        default="static",
        description="What finds memories by their meaning: `static` (built in), `minilm` (extra "
        "`embeddings`), `none` (words only), or `openai:MODEL` for an OpenAI-compatible server "
        "at `model.openai_base_url`.",
    )
    dimensions: OptionalCount = Field(
        default=None,
        description="Length of the vectors to ask a remote embedder for; without it, the "
        "model's own.",
    )
    asks_former: Switch = Field(
        default=True,
        description="After a change of `embedder`, whether searches still ask the server of the "
        "old one for as long as vectors of it are left.",
    )
    recall_tokens: int = Field(
        default=800,
        ge=0,
        le=100_000,
        description="Most tokens of memories that are put before an agent with each request; "
        "0 shows none.",
    )
    recall_scope: Annotated[Literal["session", "project", "user", "global"], AnyCase] = Field(
        default="project",
        description="How far memories come from that are put before an agent: only of its "
        "`session`, also of its `project`, also of the `user` in all projects, also of everyone "
        "(`global`).",
    )
    remember_conversations: RememberScope = Field(
        default="off",
        description="Store every turn of a conversation as a memory, found by this `session`, "
        "by all of the `user` or of the `project`; `off` stores none.",
    )
    has_tools: Switch = Field(
        default=True,
        description="Whether agents are offered the tools `remember` and `recall`.",
    )
    rerank: Switch = Field(
        default=True,
        description="Whether the best memories of a search are ranked again, token by token and "
        "by the kind of answer that is asked for.",
    )
    rerank_within_s: OptionalDuration = Field(
        default=None,
        description="A search that has taken this long is answered without ranking again.",
    )
    recency_weight: float = Field(
        default=0.0,
        ge=0.0,
        le=10.0,
        allow_inf_nan=False,
        description="How much being new counts when memories are ranked, where words and meaning "
        "count 1 together; 0 leaves age out.",
    )
    half_life_days: float = Field(
        default=30.0,
        gt=0.0,
        le=36_500.0,
        allow_inf_nan=False,
        description="After so many days being new counts half: for `recency_weight`, and for "
        "what goes first where `max_entries` or `max_bytes` is reached.",
    )
    max_entries: OptionalCount = Field(
        default=None,
        description="Keep at most this many memories of each session, user and project; the least "
        "important and oldest go first, pinned ones never.",
    )
    max_bytes: OptionalCount = Field(
        default=None,
        description="Keep at most this many bytes of memories of each session, user and project.",
    )
