"""`memo serve`: serve predictions over HTTP, with a demo page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from memo_tta.cli.method_options import all_method_options, serve_table
from memo_tta.cli.model_options import ModelChoice, model_options
from memo_tta.errors import MissingExtra

TOKEN_VARIABLE = "MEMO_SERVE_TOKEN"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _read_defaults(ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Take defaults from the file's [serve] table; the environment and the command line override them."""
    if path is not None:
        names = [option.name for option in ctx.command.params if option.name not in ("config", "options")]
        ctx.default_map = serve_table(path, [name for name in names if name])
    return path


@click.command(
    context_settings={"auto_envvar_prefix": "MEMO_SERVE"},
    epilog="Example: memo serve --model resnet50 --weights w.pth --config memo.toml --deadline-ms 20000. "
    "Every option can also be set in the table [serve] of the config file (deadline_ms = 20000) or by an "
    "environment variable (MEMO_SERVE_DEADLINE_MS=20000).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_read_defaults,
    is_eager=True,
    help="TOML file with one table of options per method, and [serve] for this command.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 chooses a free one.",
)
@model_options(default="resnet26")
@click.option("--method", default="memo", show_default=True, help="Method for requests that name none.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of the methods (repeatable).",
)
@click.option("--replicas", type=click.IntRange(1), help="Copies of the model [default: one per core].")
@click.option("--queue", type=click.IntRange(0), help="Requests that may wait [default: 4 per replica].")
@click.option(
    "--deadline-ms", default=2000, show_default=True, type=click.IntRange(1), help="Time limit per request."
)
@click.option(
    "--max-views", default=128, show_default=True, type=click.IntRange(1), help="Largest number of views."
)
@click.option(
    "--max-body-mb",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Largest request body, in MiB.",
)
@click.option(
    "--max-megapixels",
    default=25,
    show_default=True,
    type=click.IntRange(1, 99),
    help="Largest image, in megapixels.",
)
@click.option("--token", help=f"Bearer token that clients must send; prefer to set {TOKEN_VARIABLE}.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Further host name by which clients without a token may call the service (repeatable).",
)
def serve(
    config: Path | None,
    host: str,
    port: int,
    model: ModelChoice,
    method: str,
    options: Sequence[str],
    replicas: int | None,
    max_body_mb: int,
    max_megapixels: int,
    **others: Any,
) -> None:
    """Serve predictions over HTTP, with a demo page.

    Each request adapts its own copy of the model. GET / is the page, POST /v1/predict the API, /openapi.json
    its description, and /metrics has metrics for Prometheus. On SIGTERM the server finishes the requests that
    it has accepted, then exits.
    """
    try:
        from memo_tta.service.server import listen, run
    except ImportError as error:
        raise MissingExtra(f"serve needs an extra ({error}): pip install 'memo-tta[serve]'") from None
    from memo_tta.methods import METHODS
    from memo_tta.service.model import ServedModel
    from memo_tta.service.settings import Settings
    from memo_tta.workers import available_cores

    if os.environ.get(TOKEN_VARIABLE) == "" and others["token"] is None:  # click ignores empty variables
        raise click.UsageError(f"{TOKEN_VARIABLE} is empty: set it to a token, or unset it to serve without")
    settings = Settings(
        host=host,
        model=model.model,
        model_arguments=model.arguments,
        method=method,
        options=all_method_options(list(METHODS), list(METHODS), config, options),
        replicas=replicas or available_cores(),
        max_body=max_body_mb * 2**20,
        max_pixels=max_megapixels * 10**6,
        **others,
    )
    served = ServedModel.load(settings)
    with listen(host, port) as listener:
        url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        click.echo(
            f"memo: serving {served.name} with {method} at {url}, {settings.replicas} replicas "
            f"of up to {served.replica_bytes / 2**30:.1f} GiB",
            err=True,
        )
        if host not in LOOPBACK and settings.token is None:
            click.echo(
                "memo: warning: anyone who can reach this machine can use the service: set MEMO_SERVE_TOKEN",
                err=True,
            )
        run(served, listener)
