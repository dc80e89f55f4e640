"""Where progress is shown: plain lines on stderr, and on a terminal a bar under them."""

import sys
from typing import Protocol


class Display(Protocol):
    """Shows lines that stay, and the state of the moment."""

    def line(self, text: str) -> None: ...

    def at(self, done: int, total: int, doing: str) -> None: ...

    def close(self) -> None: ...


class Lines:
    """For logs and pipes: the lines only."""

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def at(self, done: int, total: int, doing: str) -> None:
        """The state of the moment leaves nothing behind here."""

    def close(self) -> None:
        """Nothing to put back."""


class Bar:
    """For a terminal: the lines scroll above a bar. Drawn when something happens, so that no thread is needed."""

    def __init__(self):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
        console = Console(stderr=True, highlight=False)
        self.progress = Progress(*columns, TimeElapsedColumn(), console=console, auto_refresh=False, transient=True)
        self.task = None  # the bar is there from the first `at` on

    def line(self, text: str) -> None:
        self.progress.console.print(text, markup=False, soft_wrap=True)
        self.progress.refresh()

    def at(self, done: int, total: int, doing: str) -> None:
        if self.task is None:
            self.task = self.progress.add_task(doing, total=total)
            self.progress.start()
        self.progress.update(self.task, completed=done, total=total, description=doing)
        self.progress.refresh()

    def close(self) -> None:
        self.progress.stop()


def make_display() -> Display:
    """A bar where stderr is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines()
