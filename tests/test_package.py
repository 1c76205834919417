"""The files in the wheel."""

import subprocess
import sys
import zipfile

from tests.conftest import ROOT


def test_the_wheel_contains_types_labels_pages_and_the_speed_suite(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = (
        "service/page/templates/page.html",
        "service/page/static/htmx.min.js",
        "bench/templates/bench.html",
    )
    for name in ("py.typed", "data/class_lists/imagenet.txt", "bench/suite.py", "cli/predict.py", *pages):
        assert f"memo_tta/{name}" in names
    assert not any(name.startswith("tests") for name in names)
