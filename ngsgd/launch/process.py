"""Processes that do not outlive the one that started them."""

import ctypes
import os
import signal

INTERRUPTED = 130  # a launcher's exit status after a signal that ended it
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP came. Not an Exception: no handler for errors should take it for one."""


def raise_on_signals(signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)) -> None:
    """Have the signals raise Interrupted in the main thread. An ignored SIGHUP (nohup) stays ignored."""

    def interrupt(number: int, _frame: object) -> None:
        raise Interrupted(signal.Signals(number).name)

    for number in signals:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """To be called in a new child: have the kernel send it `signal_number` when its parent, process `parent`, ends.

    Linux only; elsewhere a child of a killed parent goes on. The setting survives exec and is not inherited.
    """
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal_number)
