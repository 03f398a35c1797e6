"""Conversations: sessions, their messages, the turn queue, leases, forks, export.

Everything is a fact in the journal; the tables that answer questions follow from it.
"""

from holdfast.sessions.layout import layout_files
from holdfast.sessions.leases import Lease, LeaseKeeper
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
from holdfast.sessions.opening import NewSession, new_session
from holdfast.sessions.pages import Page
from holdfast.sessions.projections import SESSION_PROJECTIONS, Run, RunStatus, Signal
from holdfast.sessions.retention import RetentionPolicy, RetentionReport, clean_up
from holdfast.sessions.transfer import export_lines, parse_export
from holdfast.sessions.turn_queue import TurnQueue
from holdfast.sessions.turns import (
    Cancelled,
    Completed,
    Failed,
    Handler,
    Outcome,
    Parked,
    Turn,
)

__all__ = [
    "SESSION_PROJECTIONS",
    "STATES",
    "Cancelled",
    "Completed",
    "Failed",
    "ForkPoint",
    "Handler",
    "Lease",
    "LeaseKeeper",
    "NewSession",
    "Outcome",
    "Page",
    "Parked",
    "PermissionRule",
    "RetentionPolicy",
    "RetentionReport",
    "Run",
    "RunStatus",
    "Session",
    "SessionFilter",
    "SessionLifecycle",
    "SessionManager",
    "SessionState",
    "Signal",
    "Turn",
    "TurnQueue",
    "allowed_states",
    "clean_up",
    "compose",
    "export_lines",
    "layout_files",
    "new_session",
    "parse_export",
]
