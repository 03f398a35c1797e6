"""Conversations: sessions, their messages, runs as they are recorded, forks, export.

Everything is a fact in the journal; the tables that answer questions follow from it.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.messages import GrowingMessages as GrowingMessages
    from holdfast.messages import compose as compose
    from holdfast.messages import strip_session as strip_session
    from holdfast.sessions import events as events
    from holdfast.sessions.acting import SUBJECT as SUBJECT
    from holdfast.sessions.acting import acting_for as acting_for
    from holdfast.sessions.events import ON_BUSY as ON_BUSY
    from holdfast.sessions.events import ForkPoint as ForkPoint
    from holdfast.sessions.events import MessageCreated as MessageCreated
    from holdfast.sessions.events import MessageDeleted as MessageDeleted
    from holdfast.sessions.events import MessagePartUpdated as MessagePartUpdated
    from holdfast.sessions.events import OnBusy as OnBusy
    from holdfast.sessions.events import PermissionAction as PermissionAction
    from holdfast.sessions.events import PermissionRule as PermissionRule
    from holdfast.sessions.events import Ranges as Ranges
    from holdfast.sessions.events import RunCancelled as RunCancelled
    from holdfast.sessions.events import RunCompleted as RunCompleted
    from holdfast.sessions.events import RunFailure as RunFailure
    from holdfast.sessions.events import RunParked as RunParked
    from holdfast.sessions.events import RunQueued as RunQueued
    from holdfast.sessions.events import RunResumed as RunResumed
    from holdfast.sessions.events import RunStarted as RunStarted
    from holdfast.sessions.events import RunSteered as RunSteered
    from holdfast.sessions.events import RunWoken as RunWoken
    from holdfast.sessions.events import SessionChanges as SessionChanges
    from holdfast.sessions.events import SessionCreated as SessionCreated
    from holdfast.sessions.events import SessionForked as SessionForked
    from holdfast.sessions.events import SessionRulesAdded as SessionRulesAdded
    from holdfast.sessions.events import SessionState as SessionState
    from holdfast.sessions.events import SessionUpdated as SessionUpdated
    from holdfast.sessions.layout import export_layout_files as export_layout_files
    from holdfast.sessions.lifecycle import LIFECYCLE_EVENTS as LIFECYCLE_EVENTS
    from holdfast.sessions.lifecycle import SessionLifecycle as SessionLifecycle
    from holdfast.sessions.lifecycle import make_lifecycle_handler as make_lifecycle_handler
    from holdfast.sessions.manager import SESSION_PROJECTIONS as SESSION_PROJECTIONS
    from holdfast.sessions.manager import SessionFilter as SessionFilter
    from holdfast.sessions.manager import SessionManager as SessionManager
    from holdfast.sessions.manager import SortField as SortField
    from holdfast.sessions.messages import MESSAGES as MESSAGES
    from holdfast.sessions.messages import MessageReader as MessageReader
    from holdfast.sessions.messages import MessageRow as MessageRow
    from holdfast.sessions.pages import LONGEST_PAGE as LONGEST_PAGE
    from holdfast.sessions.pages import Page as Page
    from holdfast.sessions.pages import fetch_page as fetch_page
    from holdfast.sessions.retention import RetentionPolicy as RetentionPolicy
    from holdfast.sessions.retention import RetentionReport as RetentionReport
    from holdfast.sessions.retention import clean_up as clean_up
    from holdfast.sessions.runs import ENDED as ENDED
    from holdfast.sessions.runs import RUNS as RUNS
    from holdfast.sessions.runs import SIGNALS as SIGNALS
    from holdfast.sessions.runs import Run as Run
    from holdfast.sessions.runs import RunStatus as RunStatus
    from holdfast.sessions.runs import Signal as Signal
    from holdfast.sessions.runs import find_queued as find_queued
    from holdfast.sessions.runs import find_run as find_run
    from holdfast.sessions.runs import get_run as get_run
    from holdfast.sessions.runs import list_unfinished as list_unfinished
    from holdfast.sessions.runs import request_of as request_of
    from holdfast.sessions.session import SESSIONS as SESSIONS
    from holdfast.sessions.session import STATES as STATES
    from holdfast.sessions.session import NewSession as NewSession
    from holdfast.sessions.session import Session as Session
    from holdfast.sessions.session import check_open as check_open
    from holdfast.sessions.session import check_transition as check_transition
    from holdfast.sessions.session import find_project_id as find_project_id
    from holdfast.sessions.session import is_hidden as is_hidden
    from holdfast.sessions.session import list_allowed_states as list_allowed_states
    from holdfast.sessions.session import make_new_session as make_new_session
    from holdfast.sessions.transfer import ExportedEvent as ExportedEvent
    from holdfast.sessions.transfer import check_events as check_events
    from holdfast.sessions.transfer import export_event as export_event
    from holdfast.sessions.transfer import export_lines as export_lines
    from holdfast.sessions.transfer import import_event as import_event
    from holdfast.sessions.transfer import iterate_bounded_lines as iterate_bounded_lines
    from holdfast.sessions.transfer import parse_export as parse_export
    from holdfast.sessions.writing import Lease as Lease
    from holdfast.sessions.writing import SessionLeases as SessionLeases
    from holdfast.sessions.writing import Writing as Writing
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "acting": "acting_for SUBJECT",
            "events": "ON_BUSY ForkPoint MessageCreated MessageDeleted MessagePartUpdated OnBusy "
            "PermissionAction PermissionRule Ranges RunCancelled RunCompleted RunFailure "
            "RunParked RunQueued RunResumed RunStarted RunSteered RunWoken SessionChanges SessionCreated "
            "SessionForked SessionRulesAdded SessionState SessionUpdated",
            "layout": "export_layout_files",
            "lifecycle": "LIFECYCLE_EVENTS SessionLifecycle make_lifecycle_handler",
            "manager": "SESSION_PROJECTIONS SessionFilter SessionManager SortField compose strip_session",
            "messages": "MESSAGES MessageReader MessageRow GrowingMessages",
            "pages": "LONGEST_PAGE Page fetch_page",
            "retention": "RetentionPolicy RetentionReport clean_up",
            "runs": "find_queued "
            "ENDED RUNS SIGNALS Run RunStatus "
            "Signal find_run get_run request_of list_unfinished",
            "session": "SESSIONS STATES NewSession Session list_allowed_states check_open check_transition "
            "find_project_id is_hidden make_new_session",
            "transfer": "ExportedEvent iterate_bounded_lines check_events export_lines export_event import_event "
            "parse_export",
            "writing": "Lease SessionLeases Writing",
        },
        rooms=("events",),
    )
