"""Pages with marked places, which are written anew from runs."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from memo_tta.files import atomic_file

MARKED = re.compile(r"(<!-- ([\w-]+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Writer = Callable[[str], str | None]  # from a name; None where the runs behind it are not at hand


def fill(text: str, writers: Mapping[str, Writer]) -> str:
    """What stands between `<!-- KIND NAME -->` and `<!-- end -->` becomes what that kind says of the name.

    Where it says nothing, what stands there stays: not all runs need to be on one machine at one time.
    """

    def written_anew(match: re.Match[str]) -> str:
        start, kind, name, end = match.groups()
        text = writers[kind](name)
        return match[0] if text is None else f"{start}\n{text.strip()}\n\n{end}"

    return MARKED.sub(written_anew, text)


def fill_page(page: Path, writers: Mapping[str, Writer]) -> None:
    text = fill(page.read_text("utf-8"), writers)
    with atomic_file(page) as part:
        part.write_text(text, "utf-8")
