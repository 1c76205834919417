"""Putting things back must not be cut short by Ctrl-C."""

from collections.abc import Callable


def run_to_end(action: Callable[[], None]) -> None:
    """Run an idempotent action until it has completed once, then raise the interrupt that came."""
    interrupt = None
    while True:
        try:
            action()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
