"""Every study is a command with help, and every command that the documentation quotes can be parsed."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from tests.conftest import ROOT

PAGES = [
    *(ROOT / "docs").glob("*.md"),
    ROOT / "README.md",
    ROOT / "src/memo_tta/models/weights/README.md",
]
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES)
QUOTED = sorted(set(re.findall(r"python -m (studies\.[^`#>\n)]*)", TEXT)))
LIBRARIES = {"__init__", "page_markers", "result_files"}
STUDIES = sorted(
    [
        *(path.stem for path in (ROOT / "studies").glob("*.py") if path.stem not in LIBRARIES),
        *(path.parent.name for path in (ROOT / "studies").glob("*/__main__.py")),
    ]
)
STUDIES += [f"peers.{name}" for name in ("checks", "corruption_differences", "measurement", "study")]


def command(name: str) -> click.Command:
    found = import_module(f"studies.{name}").main
    assert isinstance(found, click.Command)
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_describes_itself(name):
    text = command(name).get_help(click.Context(command(name), info_name=f"python -m studies.{name}"))
    assert text.startswith("Usage:") and f"python -m studies.{name} --help" in " ".join(text.split())


def test_the_documentation_quotes_studies():
    assert len(QUOTED) >= 12


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_command_can_be_parsed(quoted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("pictures", "runs/passes", "docs"):
        Path(folder).mkdir(parents=True)
    Path("resnet26_gn.npz").touch()
    name, *words = shlex.split(quoted)
    command(name.removeprefix("studies.")).make_context(name, words)
