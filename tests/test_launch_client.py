"""The caller's side of a launcher: waiting, and where its messages go."""

import time

import pytest

from ngsgd.launch.client import Launcher, wait_any

ROOT = __file__.rsplit("/", 2)[0]
LAUNCHER = f"{ROOT}/tests/fakes/quick.sh"


@pytest.mark.parametrize("pidfd", [True, False])
def test_waiting_may_have_a_limit(tmp_path, monkeypatch, pidfd):
    if not pidfd:
        monkeypatch.delattr("os.pidfd_open")
    launcher = Launcher(LAUNCHER)
    long = launcher.start("a long job", str(tmp_path / "long.log"), ["sleep", "60"])
    start = time.monotonic()
    wait_any([long], 0.1)
    assert 0.1 <= time.monotonic() - start < 30
    assert not long.finished()
    short = launcher.start("a short one", str(tmp_path / "short.log"), ["true"])
    wait_any([long, short], 60)
    assert short.finished() and not long.finished()
    launcher.end_all()
    assert long.failed()


def test_time_goes_on_while_one_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("ngsgd.launch.client.TICK_S", 0.01)
    ticks = []
    launcher = Launcher(LAUNCHER, tick=lambda: ticks.append(1))
    output = tmp_path / "output"
    launcher.run("a job", str(tmp_path / "job.log"), ["sleep", "0.2", "&&", "touch", str(output)], str(output))
    assert len(ticks) > 2


def test_messages_go_where_they_are_wanted(tmp_path):
    with (tmp_path / "messages").open("w+b") as messages:
        launcher = Launcher(LAUNCHER, stderr=messages.fileno)
        assert launcher.start("a job", str(tmp_path / "job.log"), ["false"]).wait() == 1
        messages.seek(0)
        assert b"job 1 failed, log is in" in messages.read()
