"""Conversations: sessions, their messages, runs as they are recorded, forks, export.

Everything is a fact in the journal; the tables that answer questions follow from it.
"""

from holdfast.sessions.creation import NewSession, new_session
from holdfast.sessions.layout import layout_files
from holdfast.sessions.lifecycle import SessionLifecycle
from holdfast.sessions.manager import SessionFilter, SessionManager
from holdfast.sessions.messages import compose
from holdfast.sessions.model import (
    STATES,
    ForkPoint,
    PermissionRule,
    Session,
    SessionState,
    allowed_states,
)
from holdfast.sessions.pages import Page
from holdfast.sessions.projections import SESSION_PROJECTIONS, Run, RunStatus, Signal
from holdfast.sessions.retention import RetentionPolicy, RetentionReport, clean_up
from holdfast.sessions.transfer import export_lines, parse_export
from holdfast.sessions.writing import Lease, SessionLeases, Writing

__all__ = [
    "SESSION_PROJECTIONS",
    "STATES",
    "ForkPoint",
    "Lease",
    "NewSession",
    "Page",
    "PermissionRule",
    "RetentionPolicy",
    "RetentionReport",
    "Run",
    "RunStatus",
    "Session",
    "SessionFilter",
    "SessionLeases",
    "SessionLifecycle",
    "SessionManager",
    "SessionState",
    "Signal",
    "Writing",
    "allowed_states",
    "clean_up",
    "compose",
    "export_lines",
    "layout_files",
    "new_session",
    "parse_export",
]
