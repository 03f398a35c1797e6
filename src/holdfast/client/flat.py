"""The flat names of a client, as type checkers see them; `surface.FLAT` forwards them.

Loaded by type checkers only: here every room behind the operations would be imported.
"""

from __future__ import annotations

from holdfast.operations import (
    Mode,
    Surface,
    agents,
    hooks,
    memory,
    messages,
    runs,
    sessions,
    tools,
)


class FlatNames(Surface[Mode]):
    """Methods without a namespace."""

    create_session = sessions.create
    get_session = sessions.get
    list_sessions = sessions.list_
    update_session = sessions.update
    archive_session = sessions.archive
    restore_session = sessions.restore
    delete_session = sessions.delete
    fork_session = sessions.fork
    revert_session = sessions.revert
    add_message = messages.add
    list_messages = messages.list_
    get_message = messages.get
    delete_message = messages.delete
    register_agent = agents.register
    get_agent = agents.get_definition
    list_agents = agents.list_definitions
    remove_agent = agents.remove
    register_tool = tools.register
    get_execution_history = tools.history
    execute_agent = runs.execute
    stream_agent = runs.stream
    stream = runs.stream
    store_memory = memory.store
    search_memory = memory.search
    summarize_memories = memory.summarize
    use_callbacks = hooks.use_callbacks
