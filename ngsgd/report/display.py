"""Where progress is shown: plain lines on stderr, and on a terminal the state of the moment under them."""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Protocol

from ngsgd.report.progress import format_time


class Display(Protocol):
    """Shows lines that stay, and the state of the moment.

    stderr: the descriptor that the stderr of a program started now should be, so as not to disturb; None: any.
    """

    @property
    def stderr(self) -> int | None: ...

    def line(self, text: str) -> None: ...

    def at(self, done: int, total: int, doing: str, details: Sequence[str] = (), left_s: float | None = None) -> None:
        """`done` of `total` iterations are over; what is being done now; lines about it; seconds to the end."""

    def tick(self) -> None:
        """To be called every second or so: the clock moves on."""

    def close(self) -> None: ...


class Lines:
    """For logs and pipes: the lines only."""

    stderr = None

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def at(self, done: int, total: int, doing: str, details: Sequence[str] = (), left_s: float | None = None) -> None:
        """The state of the moment leaves nothing behind here."""

    def tick(self) -> None:
        """Nor does time."""

    def close(self) -> None:
        """Nothing to put back."""


class Panel:
    """For a terminal: the lines scroll above a bar and some details. Drawn by whoever calls it: no thread is needed."""

    def __init__(self):
        from rich.console import Console
        from rich.live import Live

        self.started = self.since = time.monotonic()
        self.state: tuple[int, int, str, Sequence[str], float | None] | None = None  # there from the first `at` on
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True, get_renderable=self._render)
        self.redirected: list[logging.StreamHandler] = []
        # What other programs say is relayed: written among the panel's lines it would be overwritten with them.
        self._others, path = tempfile.mkstemp()
        os.unlink(path)
        self._relayed = 0

    @property
    def stderr(self) -> int | None:
        return self._others if self.live.is_started else None

    def line(self, text: str) -> None:
        self._relay()
        self._print(text)
        self.live.refresh()

    def at(self, done: int, total: int, doing: str, details: Sequence[str] = (), left_s: float | None = None) -> None:
        first, self.state = self.state is None, (done, total, doing, details, left_s)
        self.since = time.monotonic()
        if first:
            self._start()
        self.tick()

    def tick(self) -> None:
        self._relay()
        self.live.refresh()

    def close(self) -> None:
        self._relay()
        self.live.stop()
        for handler in self.redirected:
            handler.setStream(sys.stderr)
        os.close(self._others)

    def _start(self) -> None:
        """Show the panel, with what the log has to say above it."""
        terminal = sys.stderr
        self.live.start()
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is terminal:
                handler.setStream(sys.stderr)  # rich's by now
                self.redirected.append(handler)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def _relay(self) -> None:
        """Print the whole lines that other programs have written since."""
        said = os.pread(self._others, 1 << 20, self._relayed)
        whole = said[: said.rfind(b"\n") + 1]
        self._relayed += len(whole)
        for text in whole.decode(errors="replace").splitlines():
            self._print(text)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        if self.state is None:
            return ""
        done, total, doing, details, left_s = self.state
        now = time.monotonic()
        times = f"{format_time(now - self.started)} gone"
        if left_s is not None:
            times += f", about {format_time(max(0.0, left_s - (now - self.since)))} left"
        head = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None):
            head.add_column(no_wrap=True, ratio=ratio)
        head.add_row(Text(doing, style="bold"), ProgressBar(total, done), Text(f"{done}/{total}   {times}"))
        return Group(head, *(Text(f"  {text}", style="dim", no_wrap=True, overflow="ellipsis") for text in details))


def make_display() -> Display:
    """A panel where stderr is a terminal, else lines."""
    return Panel() if sys.stderr.isatty() else Lines()
