"""A training whose driver, launchers and jobs are killed with SIGKILL at random moments ends with the same bytes."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import environment
from test_driver import Training
from test_train_step import SMALL, golden_data  # noqa: F401 (a fixture)

VICTIMS = ("driver", "launcher", "job")


def processes_of(folder):
    """{process id: command line} of the live processes that work for the training in `folder`."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            if any(str(folder) in word for word in words) or os.readlink(entry / "cwd") == str(folder):
                found[int(entry.name)] = words
    return found


def kill(driver, folder, victim, rng):
    """SIGKILL to the driver, to one of its launchers or to one of its jobs; returns whether there was one."""
    found = {} if victim == "driver" else processes_of(folder)
    of_launcher = {pid for pid, words in found.items() if any("utils/run.py" in word for word in words[:3])}
    of_job = {pid for pid, words in found.items() if "python" in words[0]} - of_launcher - {driver.pid}
    pids = {"driver": {driver.pid}, "launcher": of_launcher, "job": of_job}[victim]
    if driver.poll() is not None or not pids:
        return False
    try:
        os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def finished_work(folder):
    """{file: time of writing} of what is done: models of iterations, examples, models of jobs with their figures."""
    done = [p for p in folder.glob("*.mdl") if p.stem.isdecimal()]
    done += [p for p in folder.glob("egs/*") if p.suffix in (".ark", ".egs") and "egs_orig" not in p.name]
    for model in folder.glob("*.*.mdl"):
        iteration, _, job = model.stem.partition(".")
        stats = folder / f"stats/job.{int(iteration) - 1}.{job}.json" if job.isdecimal() else None
        done += [stats] if stats and stats.exists() else []
    times = {}
    for path in done:
        with contextlib.suppress(FileNotFoundError):  # removed just now
            times[path] = path.stat().st_mtime_ns
    return times


def killed_until_finished(start, folder, kills, longest_s, rng):
    """Start the training again after each of `kills` kills and let the last one end; how many there were.

    It may be finished earlier. Work that was done before a kill must not be done again.
    """
    made, done, pause = 0, {}, time.sleep
    while made < kills:
        process = start()
        pause(rng.uniform(0.0, longest_s))
        killed = kill(process, folder, rng.choice(VICTIMS), rng)
        made += killed
        if not killed and process.poll() is None:
            process.kill()
            made += 1
        process.communicate(timeout=300)
        again = {path for path, when in done.items() if path.exists() and path.stat().st_mtime_ns != when}
        assert not again
        done |= finished_work(folder)
        if (folder / "final.mdl").exists():
            break
    process = start()
    error = process.communicate(timeout=600)[1]
    assert process.returncode == 0, error
    assert not {path for path, when in done.items() if path.exists() and path.stat().st_mtime_ns != when}
    return made


def test_a_driver_on_stand_ins_survives_kills(tmp_path):
    options = ("--num-epochs=2", "--num-epochs-extra=0", "--cleanup=false")
    whole, killed = Training(tmp_path / "whole"), Training(tmp_path / "killed")
    status, error = whole.run(*options)
    assert status == 0, error
    kills = killed_until_finished(lambda: killed.start(*options), killed.dir, 4, 1.5, random.Random(1))
    assert kills > 1
    assert (killed.dir / "final.mdl").read_bytes() == (whole.dir / "final.mdl").read_bytes()
    assert killed.models() == whole.models()


@pytest.mark.slow
def test_a_real_training_survives_twenty_kills(golden, golden_data):  # noqa: F811
    """Ten kills with examples on disk, ten with examples on the fly: always the model of the undisturbed training."""
    command = ["train_ngsgd.py", *SMALL, "--num-epochs=1", "--cleanup=false", "data", golden / "lang", "ali"]
    begin = time.monotonic()
    whole = subprocess.run([*map(str, command), "exp/whole"], cwd=golden_data, env=environment(), check=False)
    assert whole.returncode == 0
    seconds = time.monotonic() - begin
    expected = (golden_data / "exp/whole/final.mdl").read_bytes()
    rng = random.Random(20)
    kills = {"--egs-on-the-fly=false": 0, "--egs-on-the-fly=true": 0}
    while sum(kills.values()) < 20:
        mode = min(kills, key=kills.get)
        directory = golden_data / f"exp/{sum(kills.values())}"

        def start(mode=mode, directory=directory):
            words = [str(word) for word in (command[0], mode, *command[1:], directory)]
            return subprocess.Popen(words, cwd=golden_data, env=environment(), stderr=subprocess.PIPE, text=True)

        kills[mode] += killed_until_finished(start, directory, 10, seconds / 4, rng)
        assert (directory / "final.mdl").read_bytes() == expected
