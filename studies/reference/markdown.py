"""Docstrings and tables as Markdown."""

import re
from collections.abc import Iterable, Sequence

CODE = re.compile(r"(`[^`]*`)")


def prose(text: str) -> str:
    """Return a docstring or help text as Markdown: characters that are markup are escaped outside of code."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"<(?=[A-Za-z/!])", "&lt;", part).replace("*", r"\*") for part in parts[::2]]
    # A list is one only after an empty line.
    return re.sub(r"^(?!- |  )(.+)\n(?=- )", r"\1\n\n", "".join(parts), flags=re.MULTILINE)


def sentence(text: str) -> str:
    """Return the text as a sentence; a name at its start, such as bf16, stays in small letters."""
    is_name = bool(re.match(r"[a-z]*\d", text))
    return (text if is_name else text[:1].upper() + text[1:]).removesuffix(".") + "."


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell may hold `|`."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
