"""Damaged runs: every damage is told, and the intact rows can be saved."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from memo_tta.errors import MemoError
from memo_tta.evaluation.job import EvaluationJob
from memo_tta.evaluation.records import SkippedPoint
from memo_tta.evaluation.salvage import intact_rows, salvage
from memo_tta.evaluation.store import FILE, LOG, open_for_reading, open_for_writing
from memo_tta.evaluation.tables import METADATA, RECORDS, SKIPPED, TABLES, StoredTable, as_record
from memo_tta.report.run import open_run
from tests.conftest import ROOT, times
from tests.runs import random_records, record, write_run

PAGE = 4096
MEMORY_MIB = 256  # how much all cases together may add to the peak
JOB = EvaluationJob(data=["made"], model="resnet26", methods=("source", "tta", "memo"))
RECORDS_OF_RUN = random_records([("fog", 1), ("snow", 5)], 60)
SKIPPED_POINT = SkippedPoint("made", "fog", 1, 60, "s60", "not an image")
TOTAL = len(RECORDS_OF_RUN) + len(JOB.methods)
FACTS = {
    "job": JOB.as_dict(),
    "total": TOTAL,
    "micro_batches": {},
    "fingerprint": "0" * 32,
    "labels": {"made": [f"class {number} with a long name" for number in range(300)]},  # on overflow pages
}
KILLED = """
import os, signal, sys
from pathlib import Path
from memo_tta.evaluation.store import open_for_writing
from tests.evaluation.test_damaged_runs import FACTS, RECORDS_OF_RUN, SKIPPED_POINT
with open_for_writing(Path(sys.argv[1])) as store:
    store.save_metadata(FACTS)
    store.add([SKIPPED_POINT])
    for start in range(0, len(RECORDS_OF_RUN), 40):
        store.add(RECORDS_OF_RUN[start : start + 40])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def build_finished(folder: Path) -> None:
    """Write a finished run with a skipped image."""
    write_run(folder, RECORDS_OF_RUN, **FACTS)
    with open_for_writing(folder) as store:
        store.add([SKIPPED_POINT])


def build_killed(folder: Path) -> None:
    """Let a process write a run and die, so that all of its records are in the log."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL and (folder / LOG).stat().st_size > 10 * PAGE


BUILDERS = {"finished": build_finished, "killed": build_killed}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of an undamaged run of each kind."""
    folders = {name: tmp_path_factory.mktemp("runs") / name for name in BUILDERS}
    for name, build in BUILDERS.items():
        build(folders[name])
    return folders


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def copy_of(folder: Path, out: Path) -> Path:
    out.mkdir()
    for name, content in files_of(folder).items():
        (out / name).write_bytes(content)
    return out


# Damages: functions from content and generator to content.


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def flip_bits(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 30))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def random_blocks(content: bytes, rng: random.Random) -> list[slice]:
    """Return two places of equal size, of pages or of sectors."""
    size = rng.choice((512, PAGE, PAGE, 2 * PAGE))
    starts = (rng.randrange(max(1, len(content) // size)) * size for _ in range(2))
    return [slice(start, start + size) for start in starts]


def zero_block(content: bytes, rng: random.Random) -> bytes:
    damaged, (place, _) = bytearray(content), random_blocks(content, rng)
    damaged[place] = bytes(len(damaged[place]))
    return bytes(damaged)


def swap_blocks(content: bytes, rng: random.Random) -> bytes:
    damaged, (one, other) = bytearray(content), random_blocks(content, rng)
    damaged[one], damaged[other] = content[other], content[one]
    return bytes(damaged)


def duplicate_block(content: bytes, rng: random.Random) -> bytes:
    damaged, (one, other) = bytearray(content), random_blocks(content, rng)
    damaged[one] = content[other]
    return bytes(damaged)


def random_page(content: bytes, rng: random.Random) -> bytes:
    damaged, (place, _) = bytearray(content), random_blocks(content, rng)
    damaged[place] = rng.randbytes(len(damaged[place]))
    return bytes(damaged)


def change_header(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[rng.randrange(min(112, len(damaged)))] = rng.randrange(256)
    return bytes(damaged)


def text_instead(content: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b"<html>", b"SQLite format 3\0", "Größe\n".encode("latin-1"))) * 100


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    function.__name__: function
    for function in (
        *(truncate, flip_bits, zero_block, swap_blocks, duplicate_block, random_page),
        *(change_header, text_instead),
    )
}
LOG_DAMAGES = ("truncate", "flip_bits")


def damage(folder: Path, seed: int) -> str:
    """Damage a file of the run; return its name."""
    rng = random.Random(seed)
    name = FILE
    if (folder / LOG).exists() and rng.random() < 0.6:
        name = LOG
    kind = rng.choice(LOG_DAMAGES) if name == LOG else rng.choice(list(DAMAGES))
    path = folder / name
    path.write_bytes(DAMAGES[kind](path.read_bytes(), rng))
    return name


def check_report(folder: Path, damaged_file: str) -> str:
    """Check that a report tells the damage or shows the run's records; return what it did."""
    before = files_of(folder)
    try:
        run = open_run(folder)
        with open_for_reading(folder) as store:
            records = list(store.records())
    except MemoError as error:
        assert "\n" not in str(error) and str(folder) in str(error)
        outcome = "refused"
    else:
        assert set(records) <= set(RECORDS_OF_RUN) and run.stored == len(records) == len(set(records))
        outcome = "whole" if len(records) == len(RECORDS_OF_RUN) else "incomplete"
        if outcome == "incomplete":
            assert damaged_file == LOG
            assert f"of {TOTAL} records are missing" in " ".join(run.notes)
    assert files_of(folder) == before
    return outcome


def check_salvage(folder: Path, new: Path) -> int:
    """Check that only rows of the undamaged run are saved; return the number of records."""
    before = files_of(folder)
    try:
        salvage(folder, new)
    except MemoError as error:
        assert "not one intact record" in str(error) and not new.exists()
        return 0
    finally:
        assert files_of(folder) == before
    with open_for_reading(new) as store:
        saved = list(store.records())
        assert set(saved) <= set(RECORDS_OF_RUN) and len(set(saved)) == len(saved)
        assert store.metadata().items() <= FACTS.items()
        assert store.skipped() in ([], [SKIPPED_POINT])
    return len(saved)


def check_all(runs: dict[str, Path], folder: Path, seeds: range) -> Counter[str]:
    """Damage, report and salvage a run per seed; return how often each outcome came."""
    outcomes: Counter[str] = Counter(refused=0, whole=0, incomplete=0)
    for seed in seeds:
        kind = list(runs)[seed % len(runs)]
        damaged = copy_of(runs[kind], folder / f"{seed}")
        outcomes[check_report(damaged, damage(damaged, seed))] += 1
        outcomes["saved records"] += check_salvage(damaged, folder / f"{seed}-new")
    return outcomes


CHILD = """
import json, resource, sys
from pathlib import Path
from tests.evaluation.test_damaged_runs import check_all, check_report, copy_of
runs = {name: Path(path) for name, path in json.loads(sys.argv[1]).items()}
folder = Path(sys.argv[2])
for name, run in runs.items():
    assert check_report(copy_of(run, folder / name), "") == "whole"
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcomes = check_all(runs, folder, range(int(sys.argv[3])))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({**outcomes, "grown": grown // 1024}))
"""


def test_no_damage_goes_unnoticed_or_gives_a_wrong_record(runs, tmp_path):
    count = times(40, 500)
    words = [json.dumps({name: str(folder) for name, folder in runs.items()}), str(tmp_path), str(count)]
    child = subprocess.run([sys.executable, "-c", CHILD, *words], cwd=ROOT, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    outcomes = json.loads(child.stdout)
    assert outcomes["refused"] > count / 4 and outcomes["grown"] <= MEMORY_MIB
    assert outcomes["saved records"] > count * len(RECORDS_OF_RUN) / 2
    assert times(1, outcomes["incomplete"]) and outcomes["whole"] < count / 2, outcomes


def damaged_page(folder: Path, out: Path, number: int) -> Path:
    """Return a copy of the run in which a page is zero; the first has the number 0."""
    damaged = copy_of(folder, out)
    content = bytearray((damaged / FILE).read_bytes())
    content[number * PAGE : (number + 1) * PAGE] = bytes(PAGE)
    (damaged / FILE).write_bytes(content)
    return damaged


def test_a_lost_page_takes_only_its_own_rows_with_it(runs, tmp_path):
    """Every record is on one page: over all pages, each is lost once."""
    lost: list[object] = []
    pages = (runs["finished"] / FILE).stat().st_size // PAGE
    for number in range(pages):
        damaged = damaged_page(runs["finished"], tmp_path / f"{number}", number)
        with pytest.raises(MemoError, match=r"damaged \(.*--salvage NEW` saves the intact rows"):
            open_run(damaged)
        salvage(damaged, tmp_path / f"{number}-new")
        with open_for_reading(tmp_path / f"{number}-new") as store:
            saved = set(store.records())
        here = [record for record in RECORDS_OF_RUN if record not in saved]
        assert len(here) < len(RECORDS_OF_RUN) / 4
        lost += here
    assert pages > 15 and len(lost) == len(RECORDS_OF_RUN) == len(set(lost))


def test_rows_in_the_log_of_a_killed_process_are_saved(runs, tmp_path):
    damaged = copy_of(runs["killed"], tmp_path / "run")
    (damaged / FILE).write_bytes(b"")
    with pytest.raises(MemoError, match="it is empty, and its log is not"):
        open_run(damaged)
    salvage(damaged, tmp_path / "new")
    with open_for_reading(tmp_path / "new") as store:
        assert list(store.records()) == RECORDS_OF_RUN or set(store.records()) == set(RECORDS_OF_RUN)
        assert store.metadata() == FACTS


def test_intact_rows_in_a_wrong_place_are_told(runs, tmp_path):
    """A page that became another one, or lost the count of its cells, has rows with right checksums."""
    content = (runs["finished"] / FILE).read_bytes()
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    leaves = [number for number, page in enumerate(pages) if page[0] == 10 and b"nothing to adapt" in page]
    damages = [(number, pages[other]) for number, other in pairwise(leaves)]
    damages += [(number, pages[number][:4] + b"\1" + pages[number][5:]) for number in leaves]
    damaged = copy_of(runs["finished"], tmp_path / "run")
    for number, page in damages:
        (damaged / FILE).write_bytes(b"".join([*pages[:number], page, *pages[number + 1 :]]))
        with pytest.raises(MemoError, match=r"damaged \("):
            open_run(damaged)
    assert len(damages) > 10


@pytest.mark.parametrize("byte", [0, 18, 19])
def test_a_log_is_not_ignored_because_of_a_damaged_header(runs, tmp_path, byte):
    """With another value in these bytes, SQLite takes the file for one without a log."""
    damaged = copy_of(runs["killed"], tmp_path / "run")
    content = (damaged / FILE).read_bytes()
    (damaged / FILE).write_bytes(content[:byte] + b"\1" + content[byte + 1 :])
    with pytest.raises(MemoError, match=r"damaged \(its header is not that of a database\)"):
        open_run(damaged)
    salvage(damaged, tmp_path / "new")
    assert open_run(tmp_path / "new").missing == 0


def test_what_was_saved_is_told_and_shown(memo, runs, tmp_path):
    number = last_page_of_records(runs["finished"])
    damaged = damaged_page(runs["finished"], tmp_path / "my run", number)
    code, _, err = memo("report", damaged)
    assert code == 1 and f"`memo report '{damaged}' --salvage NEW` saves the intact rows" in err
    code, out, _ = memo("report", damaged, "--salvage", tmp_path / "new")
    run = open_run(tmp_path / "new")
    assert code == 0 and 0 < run.missing == len(RECORDS_OF_RUN) - run.stored < 40
    assert f"{run.stored} records were saved, {run.missing} of {TOTAL} are missing" in out
    assert f"continue with `{run.command}`" in out and str(tmp_path / "new") in run.command
    code, _, err = memo("report", damaged, "--salvage", tmp_path / "new")
    assert code == 1 and "exists already: name a new folder" in err
    code, _, err = memo("report", damaged, tmp_path / "new", "--salvage", tmp_path / "newer")
    assert code == 2 and "expected one damaged run, got 2 runs" in err


def last_page_of_records(folder: Path) -> int:
    """Return the number of a page with records."""
    pages = [
        number
        for number in range((folder / FILE).stat().st_size // PAGE)
        if b"nothing to adapt" in (folder / FILE).read_bytes()[number * PAGE : (number + 1) * PAGE]
    ]
    return pages[-1]


def test_a_run_whose_job_is_lost_is_shown_and_not_continued(memo, runs, tmp_path):
    damaged = copy_of(runs["finished"], tmp_path / "run")
    with connection(damaged) as database:
        database.execute("UPDATE run SET value = '{}' WHERE key IN ('job', 'total')")
    assert "2 of 366 rows cannot be trusted" in memo("report", damaged)[2]
    code, out, _ = memo("report", damaged, "--salvage", tmp_path / "new")
    assert (
        code == 0 and "360 records were saved, but not the run's job, total: show them, or start over" in out
    )
    assert "the number of its records is not known, so some may be missing" in out
    words = ("evaluate", "sample", "--model", "resnet26", "--out", tmp_path / "new")
    code, _, err = memo(*words)
    assert code == 1 and "cannot be continued, because it does not hold its job, total: use another" in err


@contextmanager
def connection(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        yield database


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET prediction = prediction + 1 WHERE position = 7 AND method = 'memo'",
        "UPDATE records SET score = CAST(score AS TEXT) WHERE position = 7",
        "UPDATE records SET sample = CAST(x'fffe80' AS TEXT) WHERE position = 7",
        "UPDATE records SET checksum = NULL",
        "UPDATE records SET checksum = 'x'",
        "UPDATE skipped SET reason = 'another'",
        "UPDATE run SET value = '[]' WHERE key = 'labels'",
        "INSERT INTO failed_records SELECT dataset, corruption, severity, method, position, sample, reason, "
        "checksum FROM records LIMIT 1",
        "INSERT INTO skipped VALUES (1, 2, 3, 4, 5, 6, 7)",
    ],
)
def test_every_table_has_checksums(runs, tmp_path, change):
    damaged = copy_of(runs["finished"], tmp_path / "run")
    with connection(damaged) as database:
        changed = database.execute(change).rowcount
    with pytest.raises(MemoError, match=rf"damaged \({changed} of \d+ rows cannot be trusted\)"):
        open_run(damaged)


def test_a_row_belongs_to_one_table():
    """So that the rows on a page whose table is not known can be told apart."""
    values = ("made", "fog", 1, 7, "s7", "not an image")
    checksums = {replace(SKIPPED, name=table.name).stored(values)[-1] for table in TABLES}
    assert len(checksums) == len(TABLES)


@pytest.mark.parametrize("change", ["DELETE FROM records WHERE position = 7", "DELETE FROM skipped"])
def test_rows_that_vanished_are_told(runs, tmp_path, change):
    damaged = copy_of(runs["finished"], tmp_path / "run")
    with connection(damaged) as database:
        database.execute(change)
    (note,) = (note for note in open_run(damaged).notes if "are missing" in note)
    assert note.startswith(("6 of 363", "3 of 363"))


WRONG_TYPES = (
    *("", "{", '"\\ud800"', "NaN", "null", "1", "-1", "true", '"text"', "[]", "[1]", "{}", '{"a": 1}'),
    *('{"data": 1, "model": 2}', '{"data": ["a"], "model": "b", "new": 1}', "[" * 100_000),
    *('{"made": 1}', '{"made": [1]}', '{"data": ["a"], "model": "b", "options": {"memo": 1}}'),
)


@pytest.mark.parametrize("key", [*FACTS, "metric", "parameters", "versions", "versions 2", "host", "began"])
def test_metadata_of_other_types_ends_in_one_line(memo, runs, tmp_path, key):
    damaged = copy_of(runs["finished"], tmp_path / "run")
    for text in WRONG_TYPES:
        with connection(damaged) as database:
            row = METADATA.stored((key, text))
            database.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?)", row)
        code, _, err = memo("report", damaged, "--html", tmp_path / "out.html")
        assert code in (0, 1) and "--debug" not in err and err.count("\n") <= 1, (text, err)


@pytest.mark.parametrize("table", [RECORDS, SKIPPED], ids=lambda table: table.name)
def test_a_row_of_other_types_cannot_be_trusted(runs, tmp_path, table: StoredTable):
    """Even if its checksum is right."""
    for value in (b"bytes", "text", 1.5):
        damaged = copy_of(runs["finished"], tmp_path / f"{value}")
        with connection(damaged) as database:
            (row,) = database.execute(f"SELECT * FROM {table.name} LIMIT 1")
            place = table.columns.index("severity")
            row = table.stored([*row[:place], value, *row[place + 1 : -1]])
            database.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(row))})", row)
        with pytest.raises(MemoError, match="1 of 367 rows cannot be trusted"):
            open_run(damaged)


@pytest.mark.parametrize("name", ["TABLE", "records", "position", "checksum"])
def test_a_damaged_schema_is_told(runs, tmp_path, name):
    for byte in (b"\xff", b"Q", b"\0", b"'"):
        damaged = copy_of(runs["finished"], tmp_path / f"{byte!r}")
        content = (damaged / FILE).read_bytes()
        schema = content[:PAGE].replace(name.encode(), byte + name.encode()[1:])
        (damaged / FILE).write_bytes(schema + content[PAGE:])
        with pytest.raises(MemoError, match="--salvage NEW"):
            open_run(damaged)
        salvage(damaged, tmp_path / f"{byte!r}-new")
        assert open_run(tmp_path / f"{byte!r}-new").missing == 0


def test_a_run_that_was_killed_at_its_creation_has_no_records_yet(memo, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).write_bytes(b"")
    code, _, err = memo("report", tmp_path / "run")
    assert code == 1 and "no records yet: continue with" in err
    with closing(sqlite3.connect(tmp_path / "run" / FILE)) as database:
        database.execute("PRAGMA journal_mode = WAL")  # and killed before the tables
    assert "no records yet: continue with" in memo("report", tmp_path / "run")[2]
    with open_for_writing(tmp_path / "run") as store:
        store.add(RECORDS_OF_RUN)
    assert open_run(tmp_path / "run").stored == len(RECORDS_OF_RUN)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder one to which this process may not write."""
    for path in folder.iterdir():
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_report_needs_no_permission_to_write_and_leaves_no_file(memo, runs, kind):
    with reachable_folder() as folder:
        run = copy_of(runs[kind], folder / "run")
        for name in ("lock", f"{FILE}-shm"):
            (run / name).unlink(missing_ok=True)
        before = files_of(run)
        with read_only(run):
            code, out, err = memo("report", run)
        assert code == 0, err
        assert f"of {len(RECORDS_OF_RUN) // 6} images" in out
        assert files_of(run) == before
        assert memo("report", run)[0] == 0 and files_of(run) == before  # nor where it may write


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Yield a new folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="memo-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_file_that_may_not_be_read_is_one_line(memo, runs):
    with reachable_folder() as folder:
        run = copy_of(runs["finished"], folder / "run")
        with read_only(run):
            os.seteuid(0) if os.getuid() == 0 else None
            (run / FILE).chmod(0)
            os.seteuid(65534) if os.getuid() == 0 else None
            code, _, err = memo("report", run)
    assert code == 1 and "cannot be read (Permission denied)" in err and err.count("\n") == 1


def test_a_run_is_shown_while_it_is_written(memo, tmp_path):
    with open_for_writing(tmp_path / "run") as store:
        store.save_metadata({"total": 5})
        store.add(RECORDS_OF_RUN[:3])
        assert "2 of 5 records are missing" in memo("report", tmp_path / "run")[1]
        code, _, err = memo("report", tmp_path / "run", "--salvage", tmp_path / "new")
        assert code == 1 and "another process is writing to this run" in err
        store.add(RECORDS_OF_RUN[3:5])
    assert open_run(tmp_path / "run").missing == 0


def test_every_value_survives(tmp_path):
    """Values at the edges of the file's format are read back, by SQLite and from the pages."""
    numbers = (0.0, -0.0, 1.0, 1e-320, float("inf"), -1e308, float("nan"), 0.1)
    texts = ("", "\0", "Größe 猫", "x" * 300, "y" * 900, "z" * 30_000)
    integers = (0, 1, -1, 127, 128, -129, 1 << 15, 1 << 23, -(1 << 31), 1 << 40, 1 << 62)
    records = [
        record("memo", position, True, score=number, dataset=text or "empty", severity=integer)
        for position, (number, text, integer) in enumerate(product(numbers, texts, integers))
    ]
    write_run(tmp_path / "run", records)
    with open_for_reading(tmp_path / "run") as store:
        read = {repr(each).replace("score=None", "score=nan") for each in store.records()}
    assert read == {repr(each) for each in records}
    found = intact_rows(tmp_path / "run" / FILE)[RECORDS]
    assert {repr(as_record(row)).replace("score=None", "score=nan") for row in found} == read
