"""The page of the command `memo`: what --help says of every command."""

import inspect
from collections.abc import Iterator

import click

from memo_tta.cli import cli
from studies.reference.markdown import prose

INTRO = """# Commands

What `memo COMMAND --help` says. Exit codes are [explained here](../howto/errors.md#exit-codes).
Generated from the code by `python -m studies.reference`."""


def page() -> str:
    """Return the page."""
    return "\n\n".join([INTRO, *_sections(click.Context(cli, info_name="memo"))]) + "\n"


def _sections(context: click.Context) -> Iterator[str]:
    """Yield what a command and its subcommands say about themselves."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"## {context.command_path}\n\n    {usage}"
    yield prose(inspect.cleandoc(command.help or ""))
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    records = [record for one in options if (record := one.get_help_record(context))]
    yield "\n".join(f"- `{names}`: {prose(' '.join(text.split()))}" for names, text in records)
    if command.epilog:
        start, _, example = command.epilog.partition(": ")
        is_one_command = ". " not in example
        yield f"{start}: `{example}`" if is_one_command else prose(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _sections(click.Context(child, parent=context, info_name=name))
