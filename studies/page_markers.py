"""Documentation pages with marked sections that are regenerated from runs."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from memo_tta.files import atomic_file

MARKED = re.compile(r"(<!-- ([\w-]+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Writer = Callable[[str], str | None]  # from a name to the section's text; None if its runs are missing


def fill(text: str, writers: Mapping[str, Writer]) -> str:
    """Replace the text between `<!-- KIND NAME -->` and `<!-- end -->` by what the kind's writer returns.

    Where it returns None the old text stays: not all runs need to be on one machine at one time.
    """

    def replace_section(match: re.Match[str]) -> str:
        start, kind, name, end = match.groups()
        section = writers[kind](name)
        return match[0] if section is None else f"{start}\n{section.strip()}\n\n{end}"

    return MARKED.sub(replace_section, text)


def fill_page(page: Path, writers: Mapping[str, Writer]) -> None:
    """Replace the marked sections of a file."""
    text = fill(page.read_text("utf-8"), writers)
    with atomic_file(page) as part:
        part.write_text(text, "utf-8")
