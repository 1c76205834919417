"""An exception at any moment of a prediction changes neither the model nor the next prediction."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta import interrupts
from memo_tta.interrupts import MAX_FAILURES
from memo_tta.methods import episode, precision
from memo_tta.models import batch_norm
from tests.conftest import ROOT, times
from tests.nets import build_classifier, everything, pictures

# Unraisable: a handler may raise while the garbage collector runs, which ignores the exception.
pytestmark = [
    pytest.mark.filterwarnings("ignore::memo_tta.MemoWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CASES = {
    "memo-buffers": ("memo", "buffers", {"n_views": 4, "lr": 0.05}),
    "memo-batch-norm": ("memo", "batch-norm", {"n_views": 4, "lr": 0.05, "optimizer": "adamw", "steps": 2}),
    "memo-bf16": ("memo", "transformer", {"n_views": 4, "lr": 0.05, "precision": "bf16"}),
    "memo-anchor": ("memo", "group-norm", {"n_views": 4, "lr": 0.05, "reset": "anchor"}),
    "restore": ("restore", "dropout", {}),
    "tent": ("tent", "batch-norm", {"lr": 0.05}),
    "sar": ("sar", "batch-norm", {"lr": 0.05, "entropy_limit": 1.0}),
    "cotta": ("cotta", "group-norm", {"lr": 0.05, "teacher_views": 2}),
    "t3a": ("t3a", "group-norm", {}),
    "bn1": ("bn1", "bfloat16", {}),
    "ttt": ("ttt", "rotation", {"n_views": 2}),
}
cases = pytest.mark.parametrize("case", CASES)


class Interrupt(Exception):
    """An exception that no code expects."""


class Trial:
    """A method, and the state that an interrupted prediction must not change."""

    def __init__(self, case: str):
        name, net, options = CASES[case]
        self.robust = mt.method(name, build_classifier(net), **options)
        self.image = pictures(1)[0]
        self.expected = self.robust.predict(self.image).logits
        self.robust.reset()
        self.before = self.state()

    def state(self) -> list[object]:
        return [
            everything(self.robust.classifier.module),
            *(torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
            *(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
            torch.is_autocast_cache_enabled(),
            [pending for pending in interrupts._PENDING.values() if pending],
        ]

    def check(self) -> None:
        assert self.state() == self.before
        self.robust.reset()

    def check_answer(self) -> None:
        assert torch.equal(self.robust.predict(self.image).logits, self.expected)
        self.robust.reset()


def raise_interrupt(*_):
    raise Interrupt


@cases
def test_a_signal_at_any_moment(case):
    """Raise from a signal handler at random times: 250 per case in the soak, 2,000 in all."""
    trial, rng = Trial(case), random.Random(case)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        trial.robust.predict(trial.image)
        seconds.append(time.perf_counter() - began)
        trial.robust.reset()
    before = signal.signal(signal.SIGALRM, raise_interrupt)
    interrupted = 0
    try:
        for _ in range(times(50, 250)):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1.1 * sorted(seconds)[2]))
                trial.robust.predict(trial.image)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                interrupted += 1
            trial.check()
        trial.check_answer()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 0


WATCHED = {module.__file__ for module in (interrupts, episode, batch_norm, precision)}


class Tracer:
    """Count the lines run by the code that changes and restores modules, and raise at one of them."""

    def __init__(self, at: int | None = None):
        self.lines, self.at = 0, at

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise Interrupt
        return self


def traced(trial: Trial, tracer: Tracer) -> bool:
    """Predict with the tracer; return whether the prediction was interrupted."""
    sys.settrace(tracer)
    try:
        trial.robust.predict(trial.image)
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@cases
@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces already")
def test_an_exception_at_any_line_of_what_lends_a_module(case):
    """Raise at random lines: 80 per case in the soak."""
    trial, counter = Trial(case), Tracer()
    traced(trial, counter)
    trial.robust.reset()
    assert counter.lines > 50
    for line in random.Random(case).choices(range(1, counter.lines + 1), k=times(40, 80)):
        assert traced(trial, Tracer(line)), f"line event {line} never came"
        trial.check()
    trial.check_answer()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_caller_s_gradient_mode_is_back_while_the_exception_is_still_held(mode):
    trial = Trial("memo-buffers")
    trial.robust.classifier.module.get_submodule("head").register_forward_hook(raise_interrupt)
    with mode():
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        with pytest.raises(Interrupt) as held:
            trial.robust.predict(trial.image)
        assert held.value.__traceback__ is not None
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == modes


class Wide(nn.Module):
    """A module with far more tensors than an action has tries, and a gradient for each."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(torch.randn(4, 3) for _ in range(3 * MAX_FAILURES))

    def forward(self, x):
        return x @ sum(self.parts)


def test_interrupts_that_come_faster_than_a_model_is_restored():
    net = Wide()
    robust = mt.Memo(mt.Classifier(net), n_views=2, lr=0.05, augment=lambda x, n, rng: torch.randn(n, 4))
    before, restore, calls = everything(net), episode._restore_value, itertools.count()

    def interrupted_every_other_time(tensor, value):
        if next(calls) % 2:
            raise Interrupt
        restore(tensor, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episode, "_restore_value", interrupted_every_other_time)
        with pytest.raises(Interrupt):
            robust.predict(torch.randn(4))
    assert next(calls) > 2 * MAX_FAILURES and everything(net) == before


FORK = """
import os, signal, sys, threading, time
import torch
import memo_tta as mt
from tests.nets import build_classifier, everything, pictures

torch.set_num_threads(1)
classifier, image = build_classifier("buffers"), pictures(1)[0]
robust = mt.Memo(classifier, n_views=4, lr=0.05, precision="bf16")
before, expected = everything(classifier.module), robust.predict(image).logits
stop = False

def work():
    while not stop:
        robust.predict(image)

thread = threading.Thread(target=work)
thread.start()
failed = 0
for turn in range(int(sys.argv[1])):
    time.sleep(0.003 * turn % 0.05)
    with torch.no_grad():  # the mode of this thread, which that of the other one must not replace
        child = os.fork()
        quiet = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    if child == 0:
        signal.alarm(30)  # a child that hangs is killed
        same = quiet and everything(classifier.module) == before
        same = same and torch.equal(robust.predict(image).logits, expected)
        os._exit(0 if same else 1)
    failed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
stop = True
thread.join()
sys.exit(failed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_a_thread_predicts_has_the_source_and_does_not_hang():
    """Run torch with one thread: it hangs by itself in a child whose parent used several."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(times(6, 60))]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{done.returncode} children hung or had other weights: {done.stderr}"
