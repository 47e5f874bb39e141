"""A page of the matrix as text."""

from __future__ import annotations

import textwrap
from typing import List

from ..pages import Entry, Page


def render(page: Page, width: int = 80) -> str:
    """The page as text, ending in a newline."""
    indent = max((len(one.label) for one in page.entries), default=0) + 4
    lines = [page.title, ""]
    for entry in page.entries:
        lines += _entry(entry, indent, width)
    lines += ["", "sources" + ("" if page.trust == "primary" else f" (in part {page.trust})")]
    for title, url in page.sources:
        lines.append("  " + " ".join(filter(None, (title, url))))
    return "\n".join(lines) + "\n"


def _entry(entry: Entry, indent: int, width: int) -> List[str]:
    lines: List[str] = []
    for number, value in enumerate(entry.values):
        head = "" if number else entry.label
        wrapper = textwrap.TextWrapper(
            width=max(60, width), initial_indent=f"  {head:<{indent - 2}}",
            subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += wrapper.wrap(value)
    return lines
