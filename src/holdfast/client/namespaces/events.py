"""`client.events`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, events


class EventNamespace(Surface[Mode]):
    """Events, as they happen and as they are stored."""

    subscribe = events.subscribe
    unsubscribe = events.unsubscribe
    stream = events.stream
    add_sink = events.add_sink
    publish = events.publish
    timeline = events.timeline
    settle = events.settle
    on_progress = events.on_progress
    on_notification = events.on_notification
    follow_sessions = events.follow_sessions
    list = events.list_
    count = events.count
    watch = events.watch
