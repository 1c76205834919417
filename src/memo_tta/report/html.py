"""One self-contained page: table and pictures, nothing fetched from anywhere."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from PIL import Image

from memo_tta.evaluation.summary import Summary


@dataclass(frozen=True)
class Figure:
    """A picture with what it shows."""

    picture: Image.Image
    caption: str


def demo_page(rows: Sequence[Summary], figures: Sequence[Figure], facts: str) -> str:
    template = files("memo_tta").joinpath("report/templates/demo.html").read_text("utf-8")
    pictures = "\n".join(
        f'<figure><img src="{_inline(figure.picture)}" alt="{escape(figure.caption)}">'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures
    )
    return Template(template).substitute(rows=_rows(rows), figures=pictures, facts=escape(facts))


def _rows(rows: Sequence[Summary]) -> str:
    source = {row.dataset: row.error for row in rows if row.method == "source"}
    lines, shown = [], None
    for row in rows:
        change = row.error - source.get(row.dataset, row.error)
        kind = "better" if change < 0 else "worse" if change > 0 else "same"
        difference = "" if row.method == "source" else f"{100 * change:+.1f}"
        first = row.dataset != shown
        shown = row.dataset
        bar = f'<span class="bar" style="width: {100 * row.error:.1f}%"></span>'
        lines.append(
            f'<tr class="{"first" if first else ""}"><th>{escape(row.dataset) if first else ""}</th>'
            f"<td>{escape(row.method)}</td><td>{100 * row.error:.1f} %</td>"
            f"<td>{100 * row.low:.1f} – {100 * row.high:.1f}</td>"
            f'<td class="{kind}">{difference}</td><td>{1000 * row.seconds:.0f} ms</td>'
            f'<td class="bars">{bar}</td></tr>'
        )
    return "\n".join(lines)


def _inline(picture: Image.Image) -> str:
    data = io.BytesIO()
    picture.save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
