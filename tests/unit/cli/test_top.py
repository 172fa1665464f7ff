"""`swingpool top`: one picture from recorded decisions, and what it does when nothing newer can be had."""

import io
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from swingpool.cli import top
from swingpool.explain.fetch import FetchError
from swingpool.top.screen import Shown, picture
from swingpool.top.watch import Watched, watch
from swingpool_control.figures import Unknown
from swingpool_control.replay.decision import Recording, newest, write
from tests.support.decisions import decisions


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording(cluster="default/chat", version="1", decisions=tuple(decisions(seconds=24)))


def shown_text(shown: Shown, *, late_s: float = 0.0, trouble: str = "") -> str:
    console = Console(record=True, width=160, file=io.StringIO())
    console.print(picture(shown, now_unix_s=shown.seen_unix_s + late_s, trouble=trouble))
    return console.export_text()


def test_every_worker_is_shown_with_its_role_and_load(recording: Recording) -> None:
    shown = Watched(lambda _: write(recording)).look()
    lines = shown_text(shown, late_s=3).splitlines()
    assert lines[0].startswith("default/chat")
    assert "seen 3 s ago" in lines[0]
    assert not isinstance(shown.view.router, Unknown)
    for worker in shown.view.router.workers:
        [line] = [line for line in lines if line.startswith(f"{worker.pod} ")]
        assert worker.role in line.split()
        assert str(worker.decodes_in_flight) in line.split()
    assert any(decision.result.summary[:60] in "\n".join(lines) for decision in recording.decisions[-2:])


def test_an_unknown_router_is_said_and_no_figure_stands_for_it(recording: Recording) -> None:
    shown = Watched(lambda _: write(recording)).look()
    blind = replace(shown, view=replace(shown.view, router=Unknown("no picker answered")))
    text = shown_text(blind)
    assert "the router is unknown: no picker answered" in text
    assert "requests/s" not in text
    assert "the router does not know it" in text


def test_after_the_first_look_only_the_newest_decisions_are_fetched(recording: Recording) -> None:
    asked: list[int | None] = []

    def fetch(last: int | None) -> object:
        asked.append(last)
        return write(recording if last is None else newest(recording, last))

    watched = Watched(fetch)
    first, second = watched.look(), watched.look()
    assert asked == [None, 1]
    assert second.seen_unix_s == first.seen_unix_s
    assert {one.now_unix_s for one in second.decisions} == {one.now_unix_s for one in first.decisions}


def test_newest_keeps_the_last_of_each_loop(recording: Recording) -> None:
    kept = newest(recording, 2).decisions
    assert [one.now_unix_s for one in kept] == sorted(one.now_unix_s for one in kept)
    for loop in ("swing", "sizing"):
        of_loop = [one for one in recording.decisions if one.loop == loop]
        assert [one for one in kept if one.loop == loop] == of_loop[-2:]


def test_what_cannot_be_fetched_later_is_said_and_the_last_picture_stays(recording: Recording) -> None:
    calls = 0

    def fetch(_: int | None) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise FetchError("no manager leads")
        if calls == 3:
            raise KeyboardInterrupt
        return write(recording)

    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(fetch, Console(file=out, force_terminal=True, width=160, height=40), every_s=0.01)
    last = out.getvalue().rsplit("no manager leads; trying again", 1)
    assert len(last) == 2
    assert "default/chat" in out.getvalue()


def test_without_decisions_it_says_so() -> None:
    with pytest.raises(FetchError, match="decided nothing"):
        Watched(lambda _: write(Recording(cluster="default/chat", version="1", decisions=()))).look()


def test_a_cluster_must_be_named() -> None:
    done = CliRunner().invoke(top.command, [])
    assert done.exit_code == 2
    assert "Missing argument 'CLUSTER'" in done.output
