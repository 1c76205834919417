"""Messages to stderr: one that cannot be written, as on a full disk, does not stop the work it is about."""

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class ForgivingStream:
    """A text stream that loses what cannot be written, instead of raising an OSError."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def forgiving_stderr() -> Generator[None]:
    """Let stderr lose what cannot be written, for the duration of the block."""
    before, sys.stderr = sys.stderr, cast(TextIO, ForgivingStream(sys.stderr))
    try:
        yield
    finally:
        sys.stderr = before
