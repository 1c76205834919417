"""Public names that users rely on."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import memo_tta as mt
from memo_tta.errors import MemoError, UnknownName


def test_public_names_are_these():
    assert mt.__all__ == [
        "AugMix",
        "Classifier",
        "CropFlip",
        "Memo",
        "MemoError",
        "MemoWarning",
        "Prediction",
        "Results",
        "Status",
        "advise",
        "corrupt",
        "evaluate",
        "get_corruption_names",
        "load",
        "load_dataset",
        "method",
        "methods",
        "objectives",
        "per_view",
    ]


@pytest.mark.parametrize("name", mt.__all__)
def test_every_public_name_can_be_used_and_is_documented(name):
    assert getattr(mt, name).__doc__
    assert name in dir(mt)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mt.nothing


def test_methods_are_these():
    assert set(mt.methods.METHODS) == {
        *("source", "tta", "bn1", "bn", "tent", "tent-episodic", "tent-all", "tent-bs1", "ttt"),
        *("memo", "memo-fast", "memo-pce", "memo-ce", "restore"),
        *("zero", "t3a", "lame", "eta", "sar", "deyo", "cotta", "recenter"),
    }


def test_an_unknown_name_lists_the_choices_and_the_nearest():
    with pytest.raises(
        UnknownName, match=r"unknown method 'meno': choose from .*memo-ce; did you mean 'memo'\?"
    ):
        mt.methods.METHODS["meno"]
    assert issubclass(UnknownName, MemoError)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, memo_tta, memo_tta.cli; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_two_classes_of_the_package_share_a_name():
    modules = Path(mt.__file__).parent.rglob("*.py")
    classes = Counter(
        node.name
        for module in modules
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert len(classes) > 100 and not [name for name, count in classes.items() if count > 1]
