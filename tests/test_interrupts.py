"""Changes are undone exactly once, even if exceptions interrupt the undoing."""

import gc

import pytest

from memo_tta import interrupts
from memo_tta.interrupts import MAX_FAILURES, protected, undoing


class Interrupted(BaseException):
    pass


def failing(times: int, log: list[str], name: str = "undone"):
    """Return an action that raises `times` times before it succeeds."""
    remaining = [Interrupted()] * times

    def action():
        if remaining:
            raise remaining.pop()
        log.append(name)

    return action


@pytest.mark.parametrize("times", [0, 1, 5])
def test_an_interrupted_action_is_repeated_and_then_the_interrupt_goes_on(times):
    log: list[str] = []
    if times:
        with pytest.raises(Interrupted), undoing(failing(times, log)):
            pass
    else:
        with undoing(failing(0, log)):
            assert not log
    assert log == ["undone"]


def test_an_action_that_never_succeeds_ends_with_its_error():
    with pytest.raises(Interrupted), undoing(failing(MAX_FAILURES + 1, [])):
        pass
    log: list[str] = []
    with undoing(failing(0, log)):
        pass
    assert log == ["undone"]


def test_inner_changes_are_undone_first_also_after_an_exception():
    log: list[str] = []
    with pytest.raises(Interrupted), undoing(failing(2, log, "outer")), undoing(failing(0, log, "inner")):
        raise ValueError
    assert log == ["inner", "outer"]


def test_a_block_that_is_never_left_is_undone_before_the_exception_goes_on():
    log: list[str] = []

    def body():
        undoing(failing(1, log)).__enter__()  # as if interrupted between __enter__ and the block
        raise ValueError

    with pytest.raises(Interrupted) as raised:
        protected(body)
    assert log == ["undone"] and isinstance(raised.value.__context__, ValueError)
    assert not any(interrupts._PENDING.values())


def test_two_interrupts_one_of_them_before_the_undoing_begins(monkeypatch):
    log: list[str] = []
    undo, calls = interrupts._undo, []

    def late(pending, depth):
        calls.append(depth)
        if len(calls) == 1:
            raise Interrupted  # before its first line
        undo(pending, depth)

    def body():
        undoing(failing(0, log)).__enter__()  # its __exit__ was interrupted before its first line, too
        raise ValueError

    monkeypatch.setattr(interrupts, "_undo", late)
    with pytest.raises(Interrupted):
        protected(body)
    assert log == ["undone"] and len(calls) == 2 and not any(interrupts._PENDING.values())


def test_what_is_done_is_not_undone_again():
    log: list[str] = []
    with pytest.raises(Interrupted), undoing(failing(3, log, "first"), failing(2, log, "second")):
        pass
    assert log == ["second", "first"]


def test_a_block_that_was_given_up_is_not_undone_again_when_it_is_collected():
    log: list[str] = []

    def generator():
        with undoing(failing(0, log, "stale")):
            yield

    stale = generator()

    def interrupted():
        next(stale)
        raise ValueError

    def body():
        with pytest.raises(ValueError):
            protected(interrupted)
        with undoing(failing(0, log, "new")):
            stale.close()
            gc.collect()
            assert log == ["stale"]
        assert log == ["stale", "new"]

    with undoing(failing(0, log, "outer")):  # keeps the list of the thread
        protected(body)
    assert log == ["stale", "new", "outer"]
