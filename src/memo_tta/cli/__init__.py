"""The command `memo`. Nothing here imports torch: a command does, when it runs."""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from memo_tta import __version__
from memo_tta.errors import MemoError

INTERRUPTED = 130

# Command name → module that holds it as a function of that name, and what `memo --help` says.
COMMANDS = {
    "demo": ("memo_tta.cli.demo", "See it work on the embedded images."),
    "predict": ("memo_tta.cli.predict", "Predict images, adapting the model to each."),
    "evaluate": ("memo_tta.cli.evaluate", "Compare methods on labelled data, point by point."),
    "tune": ("memo_tta.cli.tune", "Find MEMO's options on validation corruptions."),
    "report": ("memo_tta.cli.report", "Show a run: table, CSV, Parquet, one HTML page."),
    "serve": ("memo_tta.cli.serve", "Serve predictions over HTTP, with a page that shows them."),
    "methods": ("memo_tta.cli.listing", "List the methods, or the options of one."),
    "models": ("memo_tta.cli.listing", "List the models that have a name."),
    "datasets": ("memo_tta.cli.listing", "List the data sets that have a name."),
    "data": ("memo_tta.cli.data", "Download, verify and unpack a data set."),
    "corrupt": ("memo_tta.cli.corrupt", "Write CIFAR-10-C or ImageNet-C style copies of clean data."),
    "train": ("memo_tta.cli.train", "Train ResNet-26 on CIFAR-10."),
    "bench": ("memo_tta.cli.bench", "Measure speed and memory as ratios in one run."),
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is used, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(cls=LazyGroup, epilog="Example: memo predict photo.jpg --model resnet26 --weights w.npz")
@click.version_option(__version__, prog_name="memo", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Make a trained image classifier more robust, one test input at a time."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command; every problem ends as one line on stderr and an exit code."""
    words = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in words  # wherever it stands
    warnings.showwarning = _show_warning
    try:
        code = cli.main([word for word in words if word != "--debug"], "memo", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # `memo ... | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        expected = isinstance(error, MemoError)
        _complain(str(error) if expected else f"{type(error).__name__}: {error} (--debug shows where)")
        code = 1
    sys.exit(code or 0)


def _complain(message: str) -> None:
    click.echo(f"memo: {' '.join(message.split())}", err=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"warning: {message}")
