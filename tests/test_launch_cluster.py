"""slurm.py and queue.py on batch systems that take and refuse what the real ones do (tests/fakes/batch.py)."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment
from test_launch import NASTY, ROOT, STRANGE, body, processes_in, wait_for

from ngsgd.errors import DataError
from ngsgd.launch import siteconfig
from ngsgd.launch.request import parse

ENGINES = {
    "slurm.py": ("Slurm", ("sbatch", "squeue", "scancel", "sacct")),
    "queue.py": ("Grid Engine", ("qsub", "qstat", "qdel", "qacct")),
}


class Cluster:
    """A launcher in an empty directory, its batch system, and what may go wrong there (`order`)."""

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder / "work"
        self.title, programs = ENGINES[launcher]
        self.state = folder / "cluster"
        bin_folder = folder / "bin"
        for path in (self.folder, self.state, bin_folder):
            path.mkdir()
        for name in programs:
            (bin_folder / name).symlink_to(ROOT / "tests/fakes/batch.py")
        path = f"{bin_folder}:{environment()['PATH']}"
        self.environment = {**environment(), "PATH": path, "FAKE_CLUSTER": str(self.state), "NGSGD_PATIENCE_S": "20"}

    def order(self, name, text=""):
        (self.state / name).write_text(str(text))

    def start(self, *words, **env):
        command = [sys.executable, str(ROOT / "utils" / self.launcher), *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env={**self.environment, **env}, text=True, **pipes)

    def run(self, *words, **env):
        process = self.start(*words, **env)
        output, errors = process.communicate(timeout=100)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def jobs_submitted(self):
        return len(list((self.state / "jobs").glob("*"))) if (self.state / "jobs").exists() else 0

    def gone(self):
        """Whether nothing runs any more in the directory."""
        return processes_in(self.folder) == []


@pytest.fixture(params=ENGINES)
def cluster(request, tmp_path):
    return Cluster(request.param, tmp_path)


def test_jobs_get_words_directory_path_and_python_of_the_launcher(cluster):
    show = "import os, sys; print(sys.argv[1:], os.getcwd(), sys.executable, os.environ['OMP_NUM_THREADS'])"
    extra = cluster.folder / "extra bin"
    extra.mkdir()
    (extra / "mine").write_text("#!/bin/sh\necho mine $1\n")
    (extra / "mine").chmod(0o755)
    path = f"{extra}:{cluster.environment['PATH']}"
    words = ["python", "-c", show, *NASTY, "&&", "mine", "JOB", ">", "out.JOB"]
    done = cluster.run("JOB=3:4", "log/deep/a.JOB.log", *words, PATH=path, OMP_NUM_THREADS="7")
    assert (done.returncode, done.stderr) == (0, "")
    python = subprocess.run(["which", "python"], env=cluster.environment, capture_output=True, text=True).stdout.strip()
    assert body(cluster.folder / "log/deep/a.3.log") == [f"{NASTY} {cluster.folder} {python} 7"]
    assert (cluster.folder / "out.4").read_text() == "mine 4\n"
    lines = (cluster.folder / "log/deep/a.4.log").read_text().splitlines()
    begin = lines.index("#")
    assert lines[begin - 2].startswith("# Running on ") and lines[begin - 1].startswith("# Started at ")
    assert re.match(r"# Accounting: time=\d+ threads=1 elapsed_s=", lines[-2])
    assert lines[-1].startswith("# Ended (code 0) at ")
    assert list((cluster.folder / "log/deep/q").iterdir()) == []


def test_log_may_have_any_name(cluster):
    done = cluster.run("JOB=1:2", f"log/{STRANGE}", "echo", "JOB")
    assert (done.returncode, done.stderr) == (0, "")
    assert body(cluster.folder / "log" / STRANGE.replace("JOB", "2")) == ["2"]


def test_single_job_is_no_array(cluster):
    done = cluster.run("--max-jobs-run", "3", "a b.log", "echo", "one")
    assert (done.returncode, done.stderr) == (0, "")
    assert body(cluster.folder / "a b.log") == ["one"]


def test_failures_are_counted_and_the_first_is_shown(cluster):
    script = "echo line JOB; if [ JOB = 3 ]; then exit 3; elif [ JOB = 4 ]; then kill -9 $$; fi; touch done.JOB"
    done = cluster.run("JOB=1:5", "log/x.JOB.log", "bash", "-c", script)
    assert done.returncode == 1
    assert "2 of 5 jobs failed, log of job 3 (code 3) is in log/x.3.log\n  line 3\n" in done.stderr
    assert "# Ended (code 137; signal 9)" in (cluster.folder / "log/x.4.log").read_text()
    assert {p.name for p in cluster.folder.glob("done.*")} == {"done.1", "done.2", "done.5"}


def test_max_tries_submits_only_the_failed_jobs_again(cluster):
    script = "echo x >> tried.JOB; case JOB in 2 | 4) [ $(wc -l < tried.JOB) = 2 ] ;; esac"
    done = cluster.run("--max-tries", "3", "JOB=1:4", "JOB.log", "bash", "-c", script)
    assert done.returncode == 0
    assert "job 4 failed (code 1), trying it again (2 of 3)" in done.stderr
    tried = [(cluster.folder / f"tried.{job}").read_text().count("x") for job in range(1, 5)]
    assert tried == [1, 2, 1, 2]


def test_no_more_than_max_jobs_run_at_once_and_output_of_10_megabytes(cluster):
    (cluster.folder / "here").mkdir()
    script = "mkdir here/JOB; ls here | wc -l; head -c 10000000 /dev/zero | tr '\\0' x; sleep 0.1; rmdir here/JOB"
    done = cluster.run("--max-jobs-run", "2", "JOB=1:5", "log/JOB.log", "bash", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    logs = [(cluster.folder / f"log/{job}.log").read_text() for job in range(1, 6)]
    assert max(int(log.splitlines()[4]) for log in logs) == 2
    assert min(len(log) for log in logs) > 10_000_000


@pytest.mark.parametrize("jobs, submissions", [(500, {1}), (2500, {1, 3})])
def test_very_many_jobs(cluster, jobs, submissions):
    cluster.order("instant")
    done = cluster.run(f"JOB=1:{jobs}", "log/JOB.log", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert cluster.jobs_submitted() in submissions


def test_log_that_cannot_be_written_is_a_failure_of_that_job(cluster):
    (cluster.folder / "log.2").mkdir()
    done = cluster.run("JOB=1:3", "log.JOB", "touch", "done.JOB")
    assert done.returncode == 1
    assert "1 of 3 jobs failed, log of job 2 (its log cannot be written: Is a directory)" in done.stderr
    assert {p.name for p in cluster.folder.glob("done.*")} == {"done.1", "done.3"}


def test_scheduler_that_is_down_is_tried_again(cluster):
    cluster.order("down", 2)
    done = cluster.run("a.log", "touch", "done")
    assert done.returncode == 0
    assert f"{cluster.title} takes no jobs" in done.stderr and "trying again in 1 s" in done.stderr
    assert "trying again in 2 s" in done.stderr
    assert (cluster.folder / "done").exists()


def test_scheduler_that_stays_down_is_a_clear_failure(cluster):
    cluster.order("down", 99)
    done = cluster.run("a.log", "touch", "done", NGSGD_PATIENCE_S="2")
    assert done.returncode == 1
    assert f"{cluster.title} took no jobs for 2 s: " in done.stderr.splitlines()[-1]
    assert "try again when it is up" in done.stderr
    assert not (cluster.folder / "done").exists()


def test_refused_jobs_fail_at_once_with_the_engines_words(cluster):
    flags = {"slurm.py": ["-p", "none"], "queue.py": ["-q", "none.q"]}[cluster.launcher]
    done = cluster.run(*flags, "a.log", "true")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{cluster.title} refused the jobs: " in done.stderr
    assert {"slurm.py": "Invalid partition name", "queue.py": 'unknown queue "none.q"'}[cluster.launcher] in done.stderr


def test_submission_that_was_taken_though_it_said_no_runs_a_job_once(cluster):
    cluster.order("liar", 1)
    done = cluster.run("JOB=1:2", "JOB.log", "bash", "-c", "echo x >> ran.JOB; sleep 0.3")
    assert done.returncode == 0
    wait_for(cluster.gone, "the end of the second copies")
    assert [(cluster.folder / f"ran.{job}").read_text() for job in (1, 2)] == ["x\n", "x\n"]


def killed_for(cluster, why, *options):
    """Run three jobs, of which the engine kills the second on its first try."""
    cluster.order("kill", f"2 {why}")
    script = (
        f"echo began; touch ran.JOB; if [ JOB = 2 ] && mkdir first; then touch {cluster.state}/kill.now; sleep 60; fi"
    )
    return cluster.run(*options, "JOB=1:3", "log/JOB.log", "bash", "-c", script)


@pytest.mark.parametrize("why", ["time", "node", "memory"])
def test_job_killed_by_the_engine_is_reported_as_such(cluster, why):
    done = killed_for(cluster, why)
    assert done.returncode == 1
    reasons = {
        ("slurm.py", "time"): "time limit reached",
        ("slurm.py", "node"): "its node was lost",
        ("slurm.py", "memory"): "memory limit exceeded",
        ("queue.py", "time"): "time limit reached (h_rt=4)",
        ("queue.py", "node"): "100 : assumedly after job",
        ("queue.py", "memory"): "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
    }
    reason = f"killed by {cluster.title}: {reasons[cluster.launcher, why]}"
    assert f"1 of 3 jobs failed, log of job 2 ({reason}) is in log/2.log\n  began\n" in done.stderr
    assert cluster.gone()


def test_job_of_a_lost_node_alone_is_submitted_again(cluster):
    done = killed_for(cluster, "node", "--max-tries", "2")
    assert done.returncode == 0
    assert f"job 2 failed (killed by {cluster.title}: " in done.stderr and "trying it again (2 of 2)" in done.stderr
    assert cluster.jobs_submitted() == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_takes_the_submitted_jobs_away(cluster, number):
    process = cluster.start(
        "JOB=1:6", "--max-jobs-run", "2", "JOB.log", "bash", "-c", "touch on.JOB; sleep 100 & sleep 99"
    )
    wait_for(lambda: len(list(cluster.folder.glob("on.*"))) == 2, "the start of two jobs")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"took job(s) 1 away from {cluster.title}" in errors
    wait_for(cluster.gone, "the end of the jobs")
    assert not (cluster.folder / "on.3").exists()


def test_rerun_takes_away_the_jobs_of_a_launcher_that_was_killed(cluster):
    process = cluster.start("JOB=1:2", "JOB.log", "bash", "-c", "echo x >> ran.JOB; sleep 100")
    wait_for(lambda: len(list(cluster.folder.glob("ran.*"))) == 2, "the start of two jobs")
    process.kill()
    process.communicate()
    done = cluster.run("JOB=1:2", "JOB.log", "bash", "-c", "echo y >> ran.JOB")
    assert done.returncode == 0
    assert f"an earlier launcher was killed: took job(s) 1 away from {cluster.title}" in done.stderr
    assert cluster.gone()
    assert [(cluster.folder / f"ran.{job}").read_text() for job in (1, 2)] == ["x\ny\n", "x\ny\n"]


def test_two_launchers_on_one_log_are_refused(cluster):
    os.mkfifo(cluster.folder / "go")
    process = cluster.start("a.log", "bash", "-c", "touch on; read -r _ < go")
    wait_for((cluster.folder / "on").exists, "the start of the job")
    second = cluster.run("a.log", "true")
    assert second.returncode == 1
    assert "another launcher is at work on a.log" in second.stderr
    (cluster.folder / "go").write_text("\n")
    assert process.wait(60) == 0
    process.communicate()


def test_late_results_are_waited_for(cluster):
    cluster.order("late", 3)
    started = time.monotonic()
    done = cluster.run("JOB=1:2", "JOB.log", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - started > 3


def test_results_that_never_appear_are_a_named_failure(cluster):
    cluster.order("late", 1000)
    process = cluster.start("JOB=1:2", "JOB.log", "true", NGSGD_PATIENCE_S="2")
    _, errors = process.communicate(timeout=60)
    os.kill(int((cluster.state / "jobs/1/pid").read_text()), signal.SIGTERM)
    assert process.returncode == 1
    assert f"gone from {cluster.title}, and its result did not appear within 2 s" in errors


def test_engine_that_is_silent_for_a_while_does_no_harm(cluster):
    cluster.order("mute")
    done = cluster.run("JOB=1:2", "JOB.log", "sleep", "2.5")
    assert done.returncode == 0
    assert f"{cluster.title} does not answer" in done.stderr and done.stderr.count("\n") == 1


def test_jobs_that_can_never_start_are_taken_away(cluster):
    cluster.order("stuck")
    done = cluster.run("JOB=1:2", "JOB.log", "true")
    assert done.returncode == 1
    reason = {"slurm.py": "Slurm can never start it: BadConstraints", "queue.py": "can't open output file"}
    assert "2 of 2 jobs failed" in done.stderr and reason[cluster.launcher] in done.stderr
    assert '"cancelled"' in (cluster.state / "jobs/1/states.json").read_text()


def test_job_that_got_no_gpu_does_not_run(cluster):
    command = {"slurm.py": "sbatch", "queue.py": "qsub -V"}[cluster.launcher]
    (cluster.folder / "gpu.conf").write_text(f"command {command}\noption gpu=*\n")
    words = ["--config", "gpu.conf", "--gpu", "1", "a.log", "touch", "ran"]
    done = cluster.run(*words, CUDA_VISIBLE_DEVICES="NoDevFiles")
    assert done.returncode == 1 and "the cluster gave it no GPU" in done.stderr
    assert not (cluster.folder / "ran").exists()
    assert cluster.run(*words, CUDA_VISIBLE_DEVICES="0").returncode == 0


def test_rerun_waits_for_no_answer_about_the_jobs_of_a_run_that_ended(cluster):
    assert cluster.run("a.log", "false").returncode == 1
    cluster.order("mute")
    again = cluster.run("a.log", "true")
    assert again.returncode == 0 and "earlier" not in again.stderr


def test_no_engine_here(cluster):
    done = cluster.run("a.log", "true", PATH=str(cluster.folder))
    program = {"slurm.py": "sbatch", "queue.py": "qsub"}[cluster.launcher]
    assert done.returncode == 1
    assert f"{program} is not on PATH: no {cluster.title} here" in done.stderr
    assert not (cluster.folder / "q").exists()


KALDI_STYLE = """
# A site's file, as Kaldi's documentation has it
command qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*
option mem=* -l mem_free=$0,ram_free=$0
option mem=0          # Do not add anything to qsub_opts
option num_threads=* -pe smp $0
option num_threads=1  # Do not add anything to qsub_opts
option max_jobs_run=* -tc $0
default gpu=0
option gpu=0 -q all.q
option gpu=* -l gpu=$0 -q '*.q'
"""


def flags(text, *args):
    request = parse([*args, "JOB=1:2", "x.JOB.log", "true"])
    return siteconfig.SiteConfig(text, "queue.conf").flags_of(request, True)


@pytest.mark.parametrize(
    "args, expected",
    [
        ([], ["-q", "all.q"]),
        (["--mem", "2G"], ["-q", "all.q", "-l", "mem_free=2G,ram_free=2G"]),
        (["--mem", "0", "--num-threads=1"], ["-q", "all.q"]),
        (["--num_threads", "4", "--gpu", "1"], ["-l", "gpu=1", "-q", "*.q", "-pe", "smp", "4"]),
        (["--max-jobs-run", "7", "--max-jobs-run", "5"], ["-q", "all.q", "-tc", "5"]),
        (["--max-tries", "2", "--config", "x"], ["-q", "all.q"]),
    ],
)
def test_site_configuration(args, expected):
    assert flags(KALDI_STYLE, *args) == expected


def test_site_configuration_has_quotes_and_the_environment(monkeypatch):
    monkeypatch.setenv("GROUP", "speech")
    text = "command sbatch --account=$GROUP\noption fast=yes --comment 'a # b' # c\n"
    assert siteconfig.SiteConfig(text, "x").command == ["sbatch", "--account=speech"]
    assert flags(text, "--fast", "yes") == ["--comment", "a # b"]


@pytest.mark.parametrize(
    "text, args, message",
    [
        (KALDI_STYLE, ["--time", "1:0:0"], r"--time 1:0:0: queue.conf has no line for it; .*'option time=\* FLAGS'"),
        ("option mem=* -l m=$0", [], "queue.conf: no line 'command ...'"),
        ("command qsub\noption mem * -l", [], r"queue.conf:2: expected .* got 'option mem \* -l'"),
        ("command qsub\noption mem=* -l m=2", [], "queue.conf:2: .*without [$]0"),
        ("command qsub\noption mem=* -l 'm=$0", [], "queue.conf:2: No closing quotation"),
    ],
)
def test_site_configuration_that_cannot_be_meant(text, args, message):
    with pytest.raises(DataError, match=message):
        flags(text, *args)


def test_configuration_files(cluster):
    command = {"slurm.py": "sbatch", "queue.py": "qsub"}[cluster.launcher]
    name = {"slurm.py": "slurm.conf", "queue.py": "queue.conf"}[cluster.launcher]
    missing = cluster.run("--config", "none.conf", "a.log", "true")
    assert missing.returncode == 1 and "none.conf: cannot be read" in missing.stderr
    (cluster.folder / "conf").mkdir()
    (cluster.folder / "conf" / name).write_text(f"command {command}\noption big=yes --no-such-flag\n")
    assert cluster.run("a.log", "true").returncode == 0
    refused = cluster.run("--big", "yes", "a.log", "true")
    assert refused.returncode == 1 and "--no-such-flag" in refused.stderr


def test_portable_options_and_kaldis_own_flags_are_taken(cluster):
    own = {"slurm.py": ["-p", "gpu"], "queue.py": ["-q", "all.q", "-l", "arch=*64*", "-V", "-pe", "smp", "2"]}
    options = ["--mem", "2G", "--num-threads", "2", "--time", "0:10:00", "--gpu", "1", "-sync", "y"]
    done = cluster.run(*own[cluster.launcher], *options, "JOB=1:2", "-tc", "1", "JOB.log", "echo", "JOB")
    assert (done.returncode, done.stderr) == (0, f"{cluster.launcher}: ignoring -sync y: this launcher sees to it\n")
    assert "threads=2 " in (cluster.folder / "1.log").read_text()


def test_usage_errors(cluster):
    done = cluster.run("a.log", "true", NGSGD_PATIENCE_S="soon")
    assert done.returncode == 1 and "NGSGD_PATIENCE_S: expected a positive number of seconds, got 'soon'" in done.stderr
    done = cluster.run("JOB=1:4", "a.log", "true")
    assert done.returncode == 2 and "4 jobs would write one log file" in done.stderr
    assert f"Usage: {cluster.launcher} [options] [JOB=1:N] LOG COMMAND..." in cluster.run("--help").stdout


def test_queue_is_still_the_standard_librarys_for_the_scripts_beside_queue_py():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'utils')!r}); import queue; print(queue.Queue(), queue.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.split()[-1]).parent != ROOT / "utils"
