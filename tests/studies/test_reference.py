"""The reference pages are what the code says, and leave nothing out."""

import inspect
import re
from typing import Any

import pytest

import memo_tta as mt
from memo_tta.cli import COMMANDS
from memo_tta.methods import METHODS
from studies.reference import FOLDER, PAGES
from studies.reference.markdown import prose, sentence, table

PYTHON, METHOD_PAGE, COMMAND_PAGE = (
    (FOLDER / name).read_text("utf-8") for name in ("python.md", "methods.md", "commands.md")
)
DEFAULT = re.compile(
    r"^- \[`(\w+)`\]\(#(\w+)\): `([^`]*)`(?:; `([^`]*)` \(large(, untuned)?\))?$", re.MULTILINE
)


def section(text: str, title: str) -> str:
    """Return what a page says below a heading, up to the next one of its level or a higher one."""
    (start,) = re.finditer(rf"^(#+) `?{re.escape(title)}`?\n", text, re.MULTILINE)
    return re.split(rf"^#{{1,{len(start[1])}}} ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def is_part(part: list[str], whole: list[str]) -> bool:
    return any(whole[start : start + len(part)] == part for start in range(len(whole)))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name):
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run: python -m studies.reference"


@pytest.mark.parametrize("name", mt.__all__)
def test_every_public_name_is_there_with_its_docstring(name):
    doc, _, options = (inspect.getdoc(getattr(mt, name)) or "").partition("Options:")
    assert doc and is_part(words(doc), words(section(PYTHON, f"mt.{name}")))
    assert bool(options) == (name == "Memo")


@pytest.mark.parametrize("name", ["advise", "corrupt", "evaluate", "load", "Classifier", "Memo", "Results"])
def test_every_parameter_is_there(name):
    signature = section(PYTHON, f"mt.{name}").split("```")[1]
    parameters = inspect.signature(getattr(mt, name)).parameters
    assert parameters and all(re.search(rf"\b{one}\b", signature) for one in parameters)


@pytest.mark.parametrize("name", ["AugMix", "Classifier", "CropFlip", "Prediction", "Results", "Status"])
def test_every_public_member_of_a_class_is_there(name):
    text, kind = section(PYTHON, f"mt.{name}"), getattr(mt, name)
    members = [key for base in kind.__mro__ if "memo_tta" in base.__module__ for key in vars(base)]
    public = [key for key in members if not key.startswith("_")]
    assert public
    assert not [key for key in public if f"- `{key}`" not in text and f"\n### `{name}.{key}`\n" not in text]


def test_the_parts_of_a_prediction_in_the_guide_are_in_the_reference():
    text = section(PYTHON, "mt.Prediction")
    guide = (FOLDER.parent / "howto/predict.md").read_text("utf-8")
    used = set(re.findall(r"\bp\.(\w+)", guide))
    assert len(used) > 10 and all(f"`{name}`" in text or f"Prediction.{name}`" in text for name in used)


def test_what_public_names_return_is_there():
    returned = section(PYTHON, "What they return")
    for title in ("Method", "Explanation", "AdvisedMethod", "Dataset", "MethodComparison", "Augmentation"):
        assert section(returned, title)
    assert "`Method.predict`" in returned and "`Method.run`" not in returned


def page_defaults(name: str) -> dict[str, tuple[str, str]]:
    """Return what the page says of the defaults of a method: of small images, and of large ones."""
    text = section(METHOD_PAGE, name)
    base = re.search(r"Its options are those of \[`([\w-]+)`\]", text)
    found = page_defaults(base[1]) if base else {}
    for option, anchor, default, large, _ in DEFAULT.findall(text):
        assert option == anchor
        found[option] = (default, large or default)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_defaults_on_the_page_are_those_that_a_method_has(name):
    def effective(size: int) -> dict[str, Any]:
        return {key: repr(value) for key, value in vars(METHODS[name].resolve({}, {}, size)).items()}

    small, large = effective(32), effective(224)
    assert page_defaults(name) == {key: (small[key], large[key]) for key in small}


@pytest.mark.parametrize("name", METHODS)
def test_every_option_is_described(name):
    for option in METHODS[name].declarations.values():
        text = words(section(METHOD_PAGE, option.name).lower())
        assert is_part(words(option.meaning.lower()), text)
        assert is_part(words(option.shown_values.lower()), text)


def test_defaults_of_untuned_models_are_marked():
    tuned = vars(METHODS["memo"].resolve({"lr": 0.001}, {}, 224))
    untuned = vars(METHODS["memo"].resolve({}, {}, 224))
    marked = {option for option, *_, mark in DEFAULT.findall(section(METHOD_PAGE, "memo")) if mark}
    assert marked == {key for key in tuned if tuned[key] != untuned[key]} - {"lr"}


@pytest.mark.parametrize(
    ("methods", "needs"),
    [
        ("source tta restore", "Works with any model, and with any function."),
        ("memo memo-fast memo-pce memo-ce tent-all", "Needs a module with parameters."),
        ("tent tent-episodic tent-bs1", "Needs norm layers."),
        ("bn bn1", "Needs layers with running statistics"),
        ("ttt", "Needs a model trained with `memo train --joint`."),
    ],
)
def test_the_page_says_what_a_method_needs(methods, needs):
    assert all(needs in section(METHOD_PAGE, name) for name in methods.split())


def test_the_overview_of_methods():
    assert "| [`bn`](#bn) | 256 | no | no |" in METHOD_PAGE
    assert "| [`tent`](#tent) | 64 | yes | yes |" in METHOD_PAGE
    assert "| [`memo`](#memo) | 1 | yes | no |" in METHOD_PAGE


@pytest.mark.parametrize("command", ["", *COMMANDS, "data get"])
def test_a_command_is_there_as_its_help_prints_it(command, memo):
    code, shown, _ = memo(*command.split(), "--help")
    assert code == 0
    text = section(COMMAND_PAGE, f"memo {command}".strip())
    is_group = "\nCommands:\n" in shown
    shown = shown.split("\nCommands:\n")[0].replace("Usage:", "", 1).replace("\nOptions:\n", "\n")
    assert words(text)[: len(words(shown))] == words(shown)
    assert is_group or len(words(text)) == len(words(shown))


def test_markup_in_a_docstring_is_escaped_outside_of_code():
    assert prose("a <b>, 1<=x and `<b> * c` * d") == r"a &lt;b>, 1<=x and `<b> * c` \* d"
    assert prose("These:\n- one\n  more\n- two") == "These:\n\n- one\n  more\n- two"
    assert (sentence("weight decay"), sentence("bf16 is fast.")) == ("Weight decay.", "bf16 is fast.")
    assert table(("a", "b"), [("x|y", "z")]) == "| a | b |\n| --- | --- |\n| x\\|y | z |"
