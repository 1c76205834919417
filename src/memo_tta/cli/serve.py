"""`memo serve`: the HTTP service and its page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from memo_tta.cli.method_options import all_method_options, serve_table
from memo_tta.errors import MissingExtra

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _config(ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """The file's [serve] table gives defaults; the command line and the environment come before it."""
    if path is not None:
        names = [option.name for option in ctx.command.params if option.name not in ("config", "options")]
        ctx.default_map = serve_table(path, [name for name in names if name])
    return path


@click.command(
    context_settings={"auto_envvar_prefix": "MEMO_SERVE"},
    epilog="Example: memo serve --model resnet50 --weights w.pth --config memo.toml --deadline-ms 20000. "
    "Every option can also be set in a [serve] table of the config file (deadline_ms = 20000), or in the "
    "environment (MEMO_SERVE_DEADLINE_MS=20000).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_config,
    is_eager=True,
    help="TOML file, one table per method, and one for [serve].",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0: any free one."
)
@click.option("--model", default="resnet26", show_default=True, help="A name from `memo models`.")
@click.option("--weights", type=click.Path(path_type=Path), help=".safetensors, .pth or .npz file.")
@click.option("--method", default="memo", show_default=True, help="For requests that name none.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the methods.")
@click.option("--replicas", type=click.IntRange(1), help="Copies of the model [default: one per core].")
@click.option("--queue", type=click.IntRange(0), help="Requests that may wait [default: 4 per replica].")
@click.option("--deadline-ms", default=2000, show_default=True, type=click.IntRange(1), help="To an answer.")
@click.option("--max-views", default=128, show_default=True, type=click.IntRange(1), help="Of a request.")
@click.option(
    "--max-body-mb", default=10, show_default=True, type=click.IntRange(1), help="MiB of a request."
)
@click.option(
    "--max-megapixels", default=25, show_default=True, type=click.IntRange(1, 99), help="Of an image."
)
@click.option("--token", help="What clients must send as a bearer token; better set MEMO_SERVE_TOKEN.")
def serve(
    config: Path | None,
    host: str,
    port: int,
    method: str,
    options: Sequence[str],
    replicas: int | None,
    max_body_mb: int,
    max_megapixels: int,
    **others: Any,
) -> None:
    """Serve predictions over HTTP, and a page that shows them.

    Each request has a copy of the model to itself while it adapts. GET / is the page, POST /v1/predict the
    API, /openapi.json its description, /metrics is for Prometheus. SIGTERM finishes what was accepted.
    """
    try:
        from memo_tta.service.server import listen, run
    except ImportError as error:
        raise MissingExtra(f"serve needs more packages ({error}): pip install 'memo-tta[serve]'") from None
    from memo_tta.methods import METHODS
    from memo_tta.service.model import ServedModel
    from memo_tta.service.settings import Settings
    from memo_tta.workers import available_cores

    settings = Settings(
        method=method,
        options=all_method_options(list(METHODS), list(METHODS), config, options),
        replicas=replicas or available_cores(),
        max_body=max_body_mb * 2**20,
        max_pixels=max_megapixels * 10**6,
        **others,
    )
    served = ServedModel.load(settings)
    with listen(host, port) as listener:
        where = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        click.echo(
            f"memo: serving {served.name} with {method} on {where}, {settings.replicas} replicas", err=True
        )
        if host not in LOOPBACK and settings.token is None:
            click.echo(
                "memo: warning: anyone who reaches this machine can use it: set MEMO_SERVE_TOKEN", err=True
            )
        run(served, listener)
