"""Open the rows of a data set with the library `datasets`: from the hub, its cache, or a saved folder."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from memo_tta.archives import damage_raises
from memo_tta.errors import ConfigError, DataError, MissingExtra

PREFIX = "hfds:"
FORMS = "hfds:NAME, hfds:NAME:SPLIT or hfds:NAME:SPLIT:IMAGE_COLUMN:LABEL_COLUMN"
SAVED_SPLIT, SAVED_SPLITS = "state.json", "dataset_dict.json"  # written by save_to_disk
REPLY_SECONDS = 2  # for the hub to answer, the search for its address included


class HubSpec(NamedTuple):
    """A data set of the hub or in a saved folder, as it is named; what is empty is found out."""

    name: str
    split: str = ""
    image_column: str = ""
    label_column: str = ""

    def __str__(self) -> str:
        return PREFIX + ":".join(self).rstrip(":")

    @property
    def folder(self) -> Path:
        return Path(self.name).expanduser()

    def absolute(self) -> "HubSpec":
        """Return the same data as it is named from any folder."""
        return self._replace(name=str(self.folder.absolute())) if self.folder.is_dir() else self


def parse_spec(text: str) -> HubSpec:
    """Split hfds:NAME:SPLIT:IMAGE_COLUMN:LABEL_COLUMN; only the name is required."""
    parts = text.removeprefix(PREFIX).split(":")
    if not parts[0] or len(parts) not in (1, 2, 4):
        raise ConfigError(f"{text}: expected {FORMS}")
    return HubSpec(*parts)


def is_saved(path: Path) -> bool:
    """Return whether the folder was written by `save_to_disk`."""
    return (path / SAVED_SPLIT).is_file() or (path / SAVED_SPLITS).is_file()


def open_rows(spec: HubSpec) -> Any:
    """Return the rows of the split that is named, or of the only one."""
    library = hub_library()
    if not spec.folder.is_dir():
        _check_hub(spec)
    with damage_raises(DataError, f"{spec}: cannot be loaded"), _without_notes(library):
        if is_saved(spec.folder):
            saved = _load_saved(library, spec)
            has_splits = isinstance(saved, Mapping)
            split = _choose_split(spec, list(saved) if has_splits else [])
            return saved[split] if has_splits else saved
        name, config = _name_and_config(spec)
        builder = library.load_dataset_builder(name, config)
        splits = builder.info.splits or getattr(builder.config, "data_files", None) or {}
        return library.load_dataset(name, config, split=_choose_split(spec, list(map(str, splits))))


def _load_saved(library: Any, spec: HubSpec) -> Any:
    try:
        return library.load_from_disk(str(spec.folder))
    except IndexError:  # what the library raises if no file was saved
        raise DataError(f"{spec}: has no rows, expected one per image") from None


def hub_library() -> Any:
    try:
        return import_module("datasets")
    except ImportError:
        raise MissingExtra("datasets is not installed: pip install 'memo-tta[data]'") from None


def _name_and_config(spec: HubSpec) -> tuple[str, str | None]:
    """Return the name on the hub and the configuration, a third part of the name."""
    if spec.folder.is_dir():
        return spec.name, None
    owner, *rest = spec.name.split("/")
    return "/".join([owner, *rest[:1]]), "/".join(rest[1:]) or None


@contextmanager
def _without_notes(library: Any) -> Iterator[None]:
    """Silence what the library logs about where it found something, and its bars unless on a terminal."""
    verbosity, hides_bars = library.logging.get_verbosity(), library.utils.are_progress_bars_disabled()
    library.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        library.disable_progress_bars()
    try:
        yield
    finally:
        library.logging.set_verbosity(verbosity)
        if not hides_bars:
            library.enable_progress_bars()


def _check_hub(spec: HubSpec) -> None:
    """Raise if the hub does not answer soon or has no such data set; the library would try for longer."""
    answers: SimpleQueue[Exception | None] = SimpleQueue()
    Thread(target=lambda: answers.put(_ask_hub(_name_and_config(spec)[0])), daemon=True).start()
    errors = import_module("huggingface_hub.errors")
    try:
        problem = answers.get(timeout=REPLY_SECONDS)
    except Empty:
        problem = TimeoutError(f"no answer within {REPLY_SECONDS} s")
    if problem is None or isinstance(problem, errors.OfflineModeIsEnabled):
        return
    if isinstance(problem, errors.RepositoryNotFoundError):
        raise DataError(
            f"{spec}: neither a folder nor a data set of the hub that you may read: check the name, "
            "or log in with `hf auth login`"
        )
    if isinstance(problem, errors.HFValidationError):
        raise DataError(f"{spec}: neither a folder nor the name of a data set, like owner/name")
    raise DataError(
        f"{spec}: the hub cannot be reached ({str(problem).splitlines()[0]}): set HF_HUB_OFFLINE=1 "
        "if it is in the library's cache, or name a folder that `save_to_disk` wrote"
    )


def _ask_hub(name: str) -> Exception | None:
    """Return why the hub does not know a data set of this name; None if it does."""
    try:
        import_module("huggingface_hub").HfApi().dataset_info(name, timeout=REPLY_SECONDS)
    except Exception as error:  # of several libraries below this one
        return error
    return None


def _choose_split(spec: HubSpec, splits: Sequence[str]) -> str:
    """Return the split that is named, or the only one."""
    names = ", ".join(splits) or "no splits"
    if not spec.split and len(splits) > 1:
        raise DataError(f"{spec}: expected the name of a split, one of {names}, like {spec}:{splits[-1]}")
    if spec.split and spec.split not in splits:
        raise DataError(f"{spec}: has no split {spec.split!r}, found {names}")
    return spec.split or next(iter(splits), "")
