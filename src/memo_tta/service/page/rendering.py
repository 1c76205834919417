"""Jinja templates of the page, with autoescape."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

TEMPLATES = Path(__file__).parent / "templates"

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def render(template: str, **values: Any) -> str:
    """Render a template of the page to HTML."""
    return _ENVIRONMENT.get_template(template).render(**values)
