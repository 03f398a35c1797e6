"""Records that cannot be trusted."""

from __future__ import annotations

from holdfast.errors.error import HoldfastError


class Damaged(HoldfastError):
    """Records cannot be trusted."""

    code = "damaged"


class StorageDamaged(Damaged):
    """The file is no database of ours, or is broken; it was left as it is."""

    code = "storage.damaged"
    message = "{path} is not a sound Holdfast database: {detail}"
    next_step = (
        "It was not touched. Restore a copy, or mend what can be mended: holdfast storage rebuild"
    )


class MemoryIndexDamaged(StorageDamaged):
    """The index of words is broken; the memories themselves are not."""

    code = "memory.index_damaged"
    message = "The index of words in {path} is damaged: {detail}"
    next_step = "Run `holdfast memory reindex`; it is made anew from the memories."


class ArtifactDamaged(Damaged):
    """A content is missing, or is not what was saved; it was left as it is."""

    code = "artifact.damaged"
    message = "The artifact content {what} cannot be trusted: {detail}."
    next_step = "`holdfast artifacts verify` names all that are concerned; restore a copy of them."


class SchemaTooNew(Damaged):
    """Written by a newer Holdfast than this one; it was left as it is."""

    code = "storage.schema_too_new"
    message = "{what} has version {found}; this Holdfast knows versions up to {known}."
    next_step = "Upgrade Holdfast: pip install -U holdfast"


class StateUnreadable(Damaged):
    """A value of the state does not fit the schema it is read with; it was left as it is."""

    code = "state.unreadable"
    message = "{address} cannot be read as {schema}: {detail}"
    next_step = "Add the migration that is missing, or read the value without a schema."


class ChainBroken(Damaged):
    """The hash chain of a session does not hold."""

    code = "audit.chain_broken"
    message = "The records of session {session_id} were changed at event {session_seq}: {detail}"
    next_step = "Keep the file as evidence, and restore a copy from before the change."
