"""The launchers on a real Slurm and a real Grid Engine, started on this machine by tests/cluster/.

They run as root where the engines are installed, and are skipped elsewhere; NGSGD_CLUSTER=install installs them first
(Debian). Slurm starts in a second or two, so its quick part runs with every run of the suite.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import environment
from test_launch import ROOT, STRANGE, body, wait_for
from test_recipe_tiny import checkout, finish, rates, start  # noqa: F401 (checkout is a fixture)

WHERE = os.environ["PATH"] + ":/usr/sbin"


def free_ports(count):
    """The first of `count` free ports in a row."""
    for first in range(18000 + os.getpid() % 5000, 32000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError(f"no {count} free ports in a row")


class Engine:
    """A cluster of tests/cluster/NAME.sh in a directory and at ports of its own."""

    def __init__(self, name, program, folder):
        if os.geteuid() != 0:
            pytest.skip(f"starting {name} needs root")
        if shutil.which(program, path=WHERE) is None and os.environ.get("NGSGD_CLUSTER") != "install":
            pytest.skip(f"{program} is not installed; NGSGD_CLUSTER=install has tests/cluster/{name}.sh install it")
        self.script = ROOT / "tests/cluster" / f"{name}.sh"
        upper = f"NGSGD_{name.upper()}"
        self.environment = {**environment(), f"{upper}_DIR": str(folder), f"{upper}_PORT": str(free_ports(4))}
        for line in self.control("start").splitlines():
            variable, value = re.fullmatch(r"export (\w+)='(.*)'", line).groups()
            self.environment[variable] = value

    def control(self, *words):
        """What the cluster's script prints."""
        command = ["bash", str(self.script), *words]
        return subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, text=True, timeout=600, check=True
        ).stdout

    def start(self, folder, *words):
        return subprocess.Popen(words, cwd=folder, env=self.environment, stderr=subprocess.PIPE, text=True)

    def run(self, folder, *words, timeout=100):
        process = self.start(folder, *words)
        _, errors = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(words, process.returncode, stderr=errors)

    def ask(self, *words):
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    engine = Engine("slurm", "slurmctld", tmp_path_factory.mktemp("s"))
    yield engine
    engine.control("stop")


@pytest.fixture(scope="module")
def grid_engine(tmp_path_factory):
    engine = Engine("gridengine", "sge_qmaster", tmp_path_factory.mktemp("g"))
    yield engine
    engine.control("stop")


def check_jobs(engine, launcher, folder):
    """What every engine must do with jobs that succeed, fail, and are killed."""
    words = ["echo", "it's JOB", "&&", "pwd", "|", "cat", ">", "out.JOB"]
    done = engine.run(folder, launcher, "--max-jobs-run", "2", "JOB=1:4", "log/a.JOB.log", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "out.3").read_text() == f"{folder}\n"
    assert body(folder / "log/a.3.log") == ["it's 3"]
    done = engine.run(folder, launcher, "JOB=1:2", f"log/{STRANGE}", "echo", "JOB")
    assert (done.returncode, done.stderr) == (0, "")
    assert body(folder / "log" / STRANGE.replace("JOB", "2")) == ["2"]
    script = "echo line JOB; if [ JOB = 2 ]; then exit 3; elif [ JOB = 3 ]; then kill -9 $$; fi"
    done = engine.run(folder, launcher, "JOB=1:3", "log/b.JOB.log", "bash", "-c", script)
    assert done.returncode == 1
    assert "2 of 3 jobs failed, log of job 2 (code 3) is in log/b.2.log\n  line 2\n" in done.stderr


def check_interrupt(engine, launcher, folder, listing):
    process = engine.start(folder, launcher, "JOB=1:6", "i.JOB.log", "bash", "-c", "touch on.JOB; sleep 100")
    wait_for((folder / "on.1").exists, "the start of a job")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "away from" in errors
    assert engine.ask(*listing) == ""


def test_slurm(slurm, tmp_path):
    check_jobs(slurm, "slurm.py", tmp_path)
    check_interrupt(slurm, "slurm.py", tmp_path, ("squeue", "-h"))


def test_slurm_node_that_disappears(slurm, tmp_path):
    script = "echo $SLURMD_NODENAME >> node.JOB; [ JOB = 1 ] || [ $(wc -l < node.JOB) = 2 ] || sleep 100"
    process = slurm.start(tmp_path, "slurm.py", "--max-tries", "2", "JOB=1:2", "n.JOB.log", "bash", "-c", script)
    wait_for(lambda: (tmp_path / "node.2").exists() and (tmp_path / "node.2").read_text(), "the start of job 2")
    node = (tmp_path / "node.2").read_text().strip()
    slurm.control("node-down", node.removeprefix("node"))
    _, errors = process.communicate(timeout=100)
    slurm.control("node-up", node.removeprefix("node"))
    assert process.returncode == 0, errors
    assert errors == "slurm.py: job 2 failed (killed by Slurm: its node was lost), trying it again (2 of 2)\n"
    assert (tmp_path / "node.1").read_text().count("node") == 1


def test_slurm_controller_that_is_down_at_submission(slurm, tmp_path):
    slurm.control("controller-down")
    process = slurm.start(tmp_path, "slurm.py", "a.log", "touch", "done")
    first = process.stderr.readline()
    slurm.control("controller-up")
    process.communicate(timeout=100)
    assert "Slurm takes no jobs: " in first and "trying again in 1 s" in first
    assert process.returncode == 0 and (tmp_path / "done").exists()


@pytest.mark.slow
def test_slurm_memory_and_time_limits(slurm, tmp_path):
    python = "x = bytearray(900 << 20); x[::4096] = b'x' * len(x[::4096]); import time; time.sleep(20)"
    done = slurm.run(tmp_path, "slurm.py", "--mem", "100M", "m.log", "python", "-c", python)
    assert done.returncode == 1 and "(killed by Slurm: memory limit exceeded)" in done.stderr
    # Slurm counts time limits in minutes and looks at them now and then.
    done = slurm.run(tmp_path, "slurm.py", "--time", "1", "t.log", "sleep", "300", timeout=200)
    assert done.returncode == 1 and "(killed by Slurm: time limit reached)" in done.stderr


@pytest.mark.slow
def test_slurm_500_jobs(slurm, tmp_path):
    done = slurm.run(tmp_path, "slurm.py", "JOB=1:500", "log/JOB.log", "echo", "JOB", timeout=900)
    assert (done.returncode, done.stderr) == (0, "")
    assert [body(tmp_path / f"log/{job}.log") for job in (1, 500)] == [["1"], ["500"]]


@pytest.mark.slow
def test_grid_engine(grid_engine, tmp_path):
    check_jobs(grid_engine, "queue.py", tmp_path)
    check_interrupt(grid_engine, "queue.py", tmp_path, ("qstat",))
    done = grid_engine.run(tmp_path, "queue.py", "--time", "0:0:3", "t.log", "sleep", "100")
    assert done.returncode == 1 and "(killed by Grid Engine: time limit reached (h_rt=3))" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name, launcher", [("slurm", "slurm.py"), ("grid_engine", "queue.py")])
def test_small_recipe_gives_the_same_on_a_cluster(name, launcher, checkout, request, monkeypatch):  # noqa: F811
    here = checkout("here")
    expected = rates(finish(start(here)))
    there = checkout("there")
    (there / "local/cmd.sh").write_text(f"cmd={launcher}\nnj=4\n")
    for variable, value in request.getfixturevalue(name).environment.items():
        monkeypatch.setenv(variable, value)
    assert rates(finish(start(there))) == expected
    for model in ("exp/mono/final.mdl", "exp/nnet/final.mdl"):
        assert (there / model).read_bytes() == (here / model).read_bytes(), model
    assert not list(Path(there).rglob("q/*/submitted"))
