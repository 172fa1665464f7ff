"""Classes by InferenceObjectives: names and priorities come from objects that somebody else writes, at any time."""

from collections.abc import Mapping
from dataclasses import replace

from swingpool_control.placement.settings import RequestClass


def with_objectives(classes: tuple[RequestClass, ...], priorities: Mapping[str, int]) -> tuple[RequestClass, ...]:
    """Return the classes of a spec together with those that InferenceObjectives make.

    An objective of a listed class's name says that class's priority; one of another name is a class of its own, which
    is like that of requests that name none but for its priority.

    Args:
        classes: those of the spec, that of requests that name none first.
        priorities: by the objective's name.
    """
    listed = {one.name for one in classes}
    known = (replace(one, priority=priorities.get(one.name, one.priority)) for one in classes)
    added = (
        replace(classes[0], name=name, priority=priority)
        for name, priority in sorted(priorities.items())
        if name not in listed
    )
    return (*known, *added)
