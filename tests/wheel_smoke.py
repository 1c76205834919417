"""Install a wheel without extras into a fresh environment and use it: python tests/wheel_smoke.py WHEEL.

Runs with any Python and needs nothing of the project but the wheel and constraints.txt.
"""

import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
IMAGE = "from PIL import Image; Image.new('RGB', (48, 40), (90, 140, 60)).save('photo.png')"

# A command, its exit code, and words that its output must have.
RUNS = [
    ("demo --points 2", 0, "low contrast"),
    ("predict photo.png --model resnet26", 0, "photo.png"),
    ("predict photo.png --model resnet26 --method restore --json", 0, '"status"'),
    ("bench --only startup", 0, "memo --help"),
    ("methods", 0, "memo-fast"),
    ("models", 0, "resnet26"),
    ("evaluate sample --model resnet26 --methods source,restore --limit 10 --out run", 0, "done"),
    ("report run", 0, "restore"),
]
# A command that needs an extra, and the extra that its one line names.
MISSING = [
    ("serve --port 0", "serve"),
    ("report run --html run.html", "report"),
    ("report run --parquet run.parquet", "report"),
    ("corrupt sample --out corrupted --corruptions gaussian_blur", "corruptions"),
    ("evaluate sample+fog:3 --model resnet26 --methods source --limit 4 --out fog", "corruptions"),
    ("evaluate sample --model resnet26 --methods source --limit 4 --engine ray --out on-ray", "ray"),
    ("bench --only corruptions", "corruptions"),
    ("bench --only cluster", "ray,corruptions"),
]


def main(wheel: Path) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", CONSTRAINTS, wheel.resolve()], check=True)
        subprocess.run([python, "-c", IMAGE], check=True, cwd=folder)
        failures = [problem for case in RUNS if (problem := _run(python, folder, *case))]
        for command, extra in MISSING:
            failures += filter(None, [_run(python, folder, command, 1, f"pip install 'memo-tta[{extra}]'")])
    sys.exit("\n".join(failures) or None)


def _run(python: Path, folder: Path, command: str, code: int, words: str) -> str:
    """Run `memo COMMAND`; return what is wrong with it, or nothing."""
    done = subprocess.run(
        [python, "-m", "memo_tta", *command.split()], cwd=folder, capture_output=True, text=True
    )
    output = done.stdout + done.stderr
    is_one_line = code == 0 or done.stderr.count("\n") == 1
    problem = done.returncode != code or words not in output or not is_one_line
    print(f"{'FAILED' if problem else 'ok':6}  memo {command}", flush=True)  # noqa: T201
    expected = f"exit code {code}, {words!r}" + ("" if code == 0 else " in one line on stderr")
    return f"memo {command}: expected {expected}, got {done.returncode}: {output}" if problem else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
