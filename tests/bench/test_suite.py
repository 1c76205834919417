"""The suite runs and reports; whether measurements stay below their bars is not tested here."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from memo_tta.bench import (
    adaptation,
    evaluation,
    last_blocks,
    memory,
    page,
    prediction,
    restore,
    shared_passes,
    startup,
    suite,
    torchvision_import,
    views,
)
from memo_tta.bench.measurement import Measurement, interleaved
from memo_tta.cli import main
from memo_tta.models.networks.resnet26 import ResNet26
from tests.service import load


@pytest.mark.parametrize("part", ["adaptation", "startup"])
def test_a_part_prints_its_measurements(part, capsys, monkeypatch):
    monkeypatch.setattr(startup, "ROUNDS", 1)
    monkeypatch.setattr(
        adaptation, "CASES", (adaptation.AdaptationCase("ResNet-26", ResNet26, 32, 2, None, 1),)
    )
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--only", part, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["part"] == part and printed["measured"] > 0
    assert stopped.value.code == (0 if printed["holds"] else 1)


@pytest.fixture
def few(monkeypatch):
    """Few rounds, views and images: these tests do not measure."""
    for name, value in {"ROUNDS": 1, "VIEWS": 2, "N_VIEWS": (2, 3)}.items():
        monkeypatch.setattr(prediction, name, value)
    for name, value in {"WORKER_POINTS": 4, "POINTS": 2}.items():
        monkeypatch.setattr(evaluation, name, value)
    for name, value in {"ROUNDS": 1, "N_VIEWS": (2, 3), "SHARE_VIEWS": 2}.items():
        monkeypatch.setattr(page, name, value)


def test_a_prediction_is_compared_with_the_published_loop(few):
    measurements = list(prediction.run())
    assert len(measurements) == 3 and all(m.measured > 0 and m.bar for m in measurements)


def test_the_published_loop_and_ours_adapt_alike():
    published, robust = prediction.published_loop(4), prediction.our_memo(4)
    image, seen = prediction.sample_image(), []
    published.module.register_forward_hook(lambda _, inputs, logits: seen.append((inputs[0], logits)))
    published.predict(image, np.random.default_rng(0))
    (views, _), (x, logits) = seen
    torch.testing.assert_close(robust.predict_views(x, views).logits, logits[0], rtol=1e-4, atol=1e-5)


def test_the_page_shows_measurements_and_plots(few):
    html = page.render_page(
        [
            Measurement("a < b", 0.5, 1.0, "x", "by <b>hand</b>"),
            Measurement("c", 2.0, None, "", ""),
            Measurement("d", 1234.5, 1000, "MiB", ""),
        ]
    )
    rows = [line for line in html.splitlines() if line.startswith("<tr><td>")]
    number = '<td class="number">'
    assert rows == [
        f"<tr><td>a &lt; b</td>{number}0.5 x</td>{number}≤ 1 x</td>"
        '<td class="holds">holds</td><td>by &lt;b&gt;hand&lt;/b&gt;</td></tr>',
        f"<tr><td>c</td>{number}2 </td>{number}</td><td></td><td></td></tr>",
        f"<tr><td>d</td>{number}1.23e+03 MiB</td>{number}≤ 1e+03 MiB</td>"
        '<td class="missed">missed</td><td></td></tr>',
    ]
    assert "At B = 2." in html and html.count('src="data:image/svg+xml;base64,') == 2


@pytest.mark.parametrize("has_torchvision", [True, False])
def test_views_are_compared_with_the_published_code_and_torchvision(monkeypatch, has_torchvision):
    if not has_torchvision:
        monkeypatch.setattr(torchvision_import, "import_torchvision", lambda: None)
    elif torchvision_import.import_torchvision() is None:
        pytest.skip("torchvision is not installed")
    monkeypatch.setattr(views, "ROUNDS", 1)
    monkeypatch.setattr(
        views,
        "CASES",
        (views.ViewsCase(32, "padded", 2, 1, 0.5), views.ViewsCase(96, "resized", 2, 1, 0.5)),
    )
    threads = torch.get_num_threads()
    measurements = list(views.run())
    assert torch.get_num_threads() == threads
    assert [m.bar for m in measurements] == ([0.5, None] if has_torchvision else [0.5]) * 2
    assert all(m.measured > 0 for m in measurements)


def test_restore_is_compared_with_a_bare_pass(monkeypatch):
    monkeypatch.setattr(restore, "SIZE", 96)
    monkeypatch.setattr(restore, "ROUNDS", 2)
    monkeypatch.setattr(restore, "CASES", {"small": restore.CASES["MobileNetV2"]})
    clean, noisy, restorations = restore.run()
    assert 0.5 < clean.measured < noisy.measured and 0 < restorations.measured < 1
    assert [m.bar for m in (clean, noisy, restorations)] == [2.5, 8, 0.15]


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(memory, "SIZE", 64)
    assert memory._extra_memory(8) >= 0


def test_a_bar_holds_up_to_its_value():
    assert Measurement("a", 1.0, 1.0, "x", "").holds and not Measurement("a", 1.01, 1.0, "x", "").holds


def test_actions_take_turns():
    order = []
    interleaved(2, a=lambda: order.append("a"), b=lambda: order.append("b"))
    assert order == list("ababab")


def test_an_unknown_part_lists_the_choices(memo):
    code, _, err = memo("bench", "--only", "adaption")
    assert code == 1 and "did you mean 'adaptation'" in err


def test_the_help_names_every_part(memo):
    words = memo("bench", "--help")[1].replace(",", " ").replace(".", " ").split()
    assert set(suite.PARTS) <= set(words)


@pytest.fixture
def parts_run(monkeypatch):
    """Run no part, only collect the names of those that would run."""
    names: list[str] = []
    monkeypatch.setattr(suite, "show", lambda parts, as_json, page: names.extend(parts) or 0)
    return names


def test_by_default_all_parts_run_but_cluster(memo, parts_run):
    assert memo("bench") == (0, "", "") and parts_run == [name for name in suite.PARTS if name != "cluster"]


@pytest.mark.parametrize("missing", ["cv2", "scipy"])
def test_a_part_whose_extra_is_missing_is_left_out(memo, parts_run, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    line = f"left out: the part corruptions needs {missing}: pip install 'memo-tta[corruptions]'"
    assert memo("bench") == (0, "", f"memo: {line}\n")
    assert parts_run == [name for name in suite.PARTS if name not in ("corruptions", "cluster")]


@pytest.mark.parametrize(
    ("words", "missing", "message"),
    [
        (
            ("--only", "startup", "--only", "corruptions"),
            ("cv2",),
            "the part corruptions needs cv2: pip install 'memo-tta[corruptions]'",
        ),
        (("--only", "cluster"), ("ray",), "the part cluster needs ray: pip install 'memo-tta[ray]'"),
        (
            ("--only", "cluster"),
            ("scipy", "ray"),
            "the part cluster needs ray and scipy: pip install 'memo-tta[ray,corruptions]'",
        ),
        (("--page", "page.html"), ("matplotlib",), "--page needs matplotlib: pip install 'memo-tta[report]'"),
    ],
)
def test_what_was_asked_for_and_cannot_run_is_an_error(memo, parts_run, monkeypatch, words, missing, message):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    assert memo("bench", *words) == (1, "", f"memo: {message}\n") and not parts_run


WITHOUT_EXTRAS = """
import sys
from dataclasses import replace
for name in ("cv2", "scipy", "ray", "matplotlib", "pyarrow", "pandas", "fastapi", "torchvision", "timm"):
    sys.modules[name] = None
from importlib import import_module
from memo_tta.bench import adaptation, startup
from memo_tta.bench.suite import PARTS
from memo_tta.cli import main
for part in PARTS.values():
    if not part.packages:
        import_module(part.module)
startup.ROUNDS, adaptation.CASES = 1, [replace(adaptation.CASES[0], rounds=1)]
main(["bench", "--json", "--only", "startup", "--only", "adaptation"])
"""


def test_parts_that_need_no_extra_run_without_any():
    run = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True)
    assert "Error" not in run.stderr and run.returncode in (0, 1)
    assert [json.loads(line)["part"] for line in run.stdout.splitlines()] == ["startup", "adaptation"]


def test_the_load_test_measures_a_service_that_it_starts_and_ends(monkeypatch):
    for name, value in (("ROUNDS", 1), ("SLOW_CONNECTIONS", 50), ("DEADLINE_MS", 60_000)):
        monkeypatch.setattr(load, name, value)
    measured = {m.name: m for m in load.run(1.0, 24)}
    assert measured["two bare processes / service with 2 replicas"].measured > 0
    assert measured["responses other than 200 and 503"].measured == 0
    assert measured["throughput without / with slow connections"].measured > 0
    assert measured["hostile requests answered other than 4xx or 503"].measured == 0
    assert measured["open files left behind"].measured <= 0
    assert measured["changes of weights and answers"].measured == 0


def test_shared_passes_are_compared_with_single_images(monkeypatch):
    for name, value in {"POINTS": 3, "ROUNDS": 1}.items():
        monkeypatch.setattr(shared_passes, name, value)
    measurement = shared_passes.measure("tiny", tiny_network)
    assert measurement.measured > 0 and "3 images" in measurement.detail


def test_the_last_blocks_take_less_memory_than_all(monkeypatch):
    monkeypatch.setattr(last_blocks, "ROUNDS", 1)
    monkeypatch.setattr(last_blocks, "VIEWS", 2)
    measurement = last_blocks._measure_time("EfficientNet-Lite0")
    assert measurement.measured > 0 and "B = 2" in measurement.detail
    assert last_blocks._extra_kib("EfficientNet-Lite0", "last:4") >= 0


def tiny_network(classes: int) -> nn.Module:
    layers = (nn.Conv2d(3, 4, 3, stride=8), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(4, classes))
