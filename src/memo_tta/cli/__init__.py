"""The command `memo`. No module here imports torch before a command runs, so that help is instant."""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from memo_tta import __version__
from memo_tta.cli.stderr import forgiving_stderr
from memo_tta.errors import MemoError

INTERRUPTED = 130

# Command name -> module with a function of that name, and the line in `memo --help`.
COMMANDS = {
    "demo": ("memo_tta.cli.demo", "Compare methods on bundled images: table, page and pictures."),
    "predict": ("memo_tta.cli.predict", "Classify images, adapting the model to each."),
    "evaluate": ("memo_tta.cli.evaluate", "Compare methods on labelled data, image by image."),
    "advise": ("memo_tta.cli.advise", "Find out which method to use, from your own images."),
    "tune": ("memo_tta.cli.tune", "Search MEMO's options on validation corruptions."),
    "report": ("memo_tta.cli.report", "Show a run as a table, CSV, Parquet, Markdown or HTML page."),
    "serve": ("memo_tta.cli.serve", "Serve predictions over HTTP, with a demo page."),
    "methods": ("memo_tta.cli.listing", "List the methods, or the options of one."),
    "models": ("memo_tta.cli.listing", "List the named models, or the details of one."),
    "datasets": ("memo_tta.cli.listing", "List the named data sets."),
    "data": ("memo_tta.cli.data", "Download, verify and unpack a data set."),
    "corrupt": ("memo_tta.cli.corrupt", "Write CIFAR-10-C or ImageNet-C style copies of clean data."),
    "train": ("memo_tta.cli.train", "Train a small network on CIFAR-10."),
    "bench": ("memo_tta.cli.bench", "Measure speed and memory on this machine."),
}


class LazyGroup(click.Group):
    """A group that imports the module of a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog="Example: memo predict photo.jpg --model resnet26. `memo COMMAND --help` explains a command.",
)
@click.version_option(__version__, prog_name="memo", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Make a trained image classifier more robust, one test input at a time."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command; report every error as one line on stderr and by the exit code."""
    with forgiving_stderr():
        sys.exit(_run(list(sys.argv[1:] if args is None else args)))


def _run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    debug = "--debug" in arguments  # accepted before and after the command
    warnings.showwarning = _show_warning
    try:
        code = cli.main([word for word in arguments if word != "--debug"], "memo", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _print_error("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has closed it, as in `memo ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        _print_error(_explain(error))
        code = 1
    return code or 0


def _explain(error: Exception) -> str:
    if isinstance(error, MemoError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory: take smaller images, fewer views or fewer workers"
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _print_error(message: str) -> None:
    click.echo(f"memo: {' '.join(message.split())}", err=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _print_error(f"warning: {message}")
