"""Imports only point to lower layers, so that any part can be read without those above it."""

import ast
from pathlib import Path

import pytest

import memo_tta

PACKAGE = Path(memo_tta.__file__).parent

LAYERS = [
    {"errors", "interrupts", "files", "durations"},
    {"registry", "seeding", "class_lists"},
    {"workers"},
    {"image"},
    {"objectives", "views", "models", "data"},
    {"methods"},
    {"training", "evaluation"},
    {"report"},
    {"service", "bench"},
    {"cli"},
    {"__main__"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
FILES = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py"]


def part_of(path: Path) -> str:
    """Return the top-level module or package of a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(source: str) -> set[str]:
    """Return the parts of the package that the source imports, also within functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = {name.split(".")[1] for name in names if name.startswith("memo_tta.")}
    return parts - {"__version__"}


def forbidden_imports(part: str, source: str) -> set[str]:
    """Return the imported parts of the same layer or of a higher one."""
    return {other for other in imported_parts(source) if other != part and RANK[other] >= RANK[part]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    assert part_of(path) in RANK, "a new part needs its layer"
    assert not forbidden_imports(part_of(path), path.read_text())


def test_an_import_that_points_up_or_sideways_is_found():
    assert forbidden_imports("models", "from memo_tta.methods.memo import Memo") == {"methods"}
    assert forbidden_imports("models", "def f():\n    from memo_tta import views") == {"views"}
    assert not forbidden_imports("methods", "from memo_tta.models.zoo import load")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) <= 300
