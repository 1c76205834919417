"""Virtual environments with the peers in them, and what each installation needs before it can be imported."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PINNED = {"torch-ttt": "0.0.2", "ttach": "0.0.3", "imagecorruptions": "1.1.2"}
TORCHVISION = "from memo_tta.bench.torchvision_import import import_torchvision; import_torchvision(); "
RUNS = "runs"  # the outcome of a statement that raises nothing


@dataclass(frozen=True)
class Environment:
    """A virtual environment; one that is `shared` also sees the packages of the interpreter that made it."""

    folder: Path
    shared: bool

    @property
    def python(self) -> Path:
        """The interpreter of this environment."""
        return self.folder / "bin/python"

    def create(self) -> None:
        """Create it with pip alone, or with what `venv` of this Python adds to it."""
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder], check=True)
        if self.shared:
            (packages,) = self.folder.glob("lib/python*/site-packages")
            (packages / "project.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")

    def pip(self, *words: str) -> None:
        """Run pip with the versions of constraints.txt."""
        limits = ("-c", str(ROOT / "constraints.txt")) if words[0] == "install" else ()
        command = [self.python, "-m", "pip", *words, *limits, "--quiet", "--disable-pip-version-check"]
        subprocess.run(command, check=True)

    def outcome(self, statement: str) -> str:
        """Execute a statement; return RUNS, or the last line of the error."""
        process = subprocess.run(
            [self.python, "-c", statement], capture_output=True, text=True, env=self._variables({})
        )
        return RUNS if process.returncode == 0 else process.stderr.strip().splitlines()[-1]

    def run(self, module: str, *arguments: object, **variables: str) -> str:
        """Run a module in a process of its own; return what it prints."""
        command = [str(self.python), "-m", module, *map(str, arguments)]
        process = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=self._variables(variables)
        )
        return process.stdout

    def run_json(self, module: str, *arguments: object, **variables: str) -> Any:
        """Run a module in a process of its own; return the JSON that it prints last."""
        return json.loads(self.run(module, *arguments, **variables).splitlines()[-1])

    def _variables(self, more: Mapping[str, str]) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        own = {"PYTHONPATH": paths} if self.shared else {}
        return {**os.environ, "OMP_NUM_THREADS": "1", **own, **more}


def empty(out: Path) -> Environment:
    """The environment with nothing but the peers and what they declare."""
    return Environment(out / "empty", shared=False)


def project(out: Path) -> Environment:
    """The environment with the project's packages, and the peers on top."""
    return Environment(out / "project", shared=True)


@dataclass(frozen=True)
class Attempt:
    """A pip command in one of the environments, and the statement that should run after it."""

    environment: str
    pip: str
    statement: str
    prelude: str = ""


def requirement(peer: str) -> str:
    """Return the peer with its pinned version."""
    return f"{peer}=={PINNED[peer]}"


TORCH_TTT, TTACH, IMAGECORRUPTIONS = map(requirement, PINNED)
ATTEMPTS = (
    Attempt("empty", f"install {TORCH_TTT}", "import torch_ttt.engine.memo_engine"),
    Attempt("project", f"install {TORCH_TTT}", "import torch_ttt.engine.memo_engine", TORCHVISION),
    Attempt("project", "install einops", "import torch_ttt.engine.memo_engine", TORCHVISION),
    Attempt("empty", f"install {TTACH}", "import ttach"),
    Attempt("project", f"install {TTACH}", "import ttach"),
    Attempt("empty", f"install {IMAGECORRUPTIONS}", "import imagecorruptions"),
    Attempt("empty", "uninstall --yes setuptools", "import imagecorruptions"),
    Attempt("project", f"install {IMAGECORRUPTIONS}", "import imagecorruptions"),
)


def attempts(out: Path) -> Iterator[dict[str, str]]:
    """Create both environments and yield the outcome of each attempt."""
    environments = {"empty": empty(out), "project": project(out)}
    for environment in environments.values():
        environment.create()
    for attempt in ATTEMPTS:
        environment = environments[attempt.environment]
        environment.pip(*attempt.pip.split())
        outcome = environment.outcome(attempt.prelude + attempt.statement)
        yield {
            "environment": attempt.environment,
            "pip": attempt.pip,
            "statement": attempt.statement,
            "outcome": outcome,
        }


VERSIONS = """
import json, platform
from importlib.metadata import version
names = ["torch", "torchvision", "numpy", "scipy", "scikit-image", "opencv-python", "pillow", "setuptools"]
print(json.dumps({"Python": platform.python_version(), **{name: version(name) for name in names}}))
"""


def versions(environment: Environment) -> dict[str, str]:
    """Return the versions of what the peers run on."""
    process = subprocess.run([environment.python, "-c", VERSIONS], capture_output=True, text=True, check=True)
    return json.loads(process.stdout)
