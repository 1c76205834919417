"""`memo serve`: serve predictions over HTTP, with a demo page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from memo_tta.cli.method_options import all_method_options, configured_method, serve_table
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


class MethodNames(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  # older ones take none
    """Names of methods between commas; a config file may hold a list of them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names."""
        parts = cast("Sequence[object]", value) if isinstance(value, list | tuple) else str(value).split(",")
        names = tuple(str(part).strip() for part in parts)
        if not all(names) or not names:
            self.fail(f"expected names of methods like restore,memo, got {value!r}", param, ctx)
        return names


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
    help="TOML file: a method, tables of options per method, and [serve] for this command.",
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
@click.option(
    "--method",
    help="Method for requests that name none [default: memo, or the first of --methods without it].",
)
@click.option(
    "--methods",
    type=MethodNames(),
    metavar="NAMES",
    help="Comma-separated methods that requests may choose [default: all that work with the model].",
)
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
    "--max-batch",
    default=16,
    show_default=True,
    type=click.IntRange(1),
    help="Largest number of images of one request.",
)
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Images that the page offers, up to 12: a folder of images, or of one sub-folder per class "
    "[default: bundled ones, if the model has the classes of CIFAR-10].",
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
    method: str | None,
    methods: Sequence[str] | None,
    options: Sequence[str],
    replicas: int | None,
    max_body_mb: int,
    max_megapixels: int,
    **others: Any,
) -> None:
    """Serve predictions over HTTP, with a demo page.

    Each request has its own copy of the model. GET / is the page, POST /v1/predict the API (POST
    /v1/predict:batch for several images), /openapi.json its description, and /metrics has metrics for
    Prometheus. On SIGTERM the server finishes the requests that
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
    _check_model_is_given(config)
    if method is None:
        method = "memo" if methods is None or "memo" in methods else methods[0]
    settings = Settings(
        host=host,
        model=model.model,
        model_arguments=model.arguments,
        method=method,
        methods=methods,
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


def _check_model_is_given(config: Path | None) -> None:
    """Raise if the config file names the method for a model, and nothing says which model that is."""
    source = click.get_current_context().get_parameter_source("model")
    if source is ParameterSource.DEFAULT and configured_method(config) is not None:
        raise click.UsageError(
            f"{config} names the method for a model: say which with --model, or with model in [serve]"
        )
