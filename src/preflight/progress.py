"""A line on the terminal for what takes more than a moment."""

from __future__ import annotations

import os
from typing import Callable, Optional

#: Cells of the bar.
WIDTH = 30


def on_terminal() -> Optional[Callable[[int, int], None]]:
    """What draws (done, in all) on standard error, where that is a terminal.

    It has a descriptor of its own: probes run in children without the standard streams.
    """
    try:
        if not os.isatty(2) or os.environ.get("TERM") == "dumb":
            return None
        handle = os.dup(2)
    except OSError:
        return None

    def draw(done: int, total: int) -> None:
        share = done / total if total else 1.0
        bar = "#" * int(share * WIDTH)
        text = f"\r  hashing [{bar:<{WIDTH}}] {done >> 20} of {total >> 20} MiB"
        # The line is gone once all is done.
        try:
            os.write(handle, (text if done < total else "\r\033[K").encode())
        except OSError:  # the terminal is gone
            pass

    return draw
