"""Launchers: the jobs get what was written, failures are told, nothing outlives an interrupt."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngsgd.launch.quoting import shell_command, substitute
from ngsgd.launch.registry import get_launcher
from ngsgd.launch.request import UsageError, parse

ROOT = Path(__file__).parents[1]
LAUNCHERS = sorted(p.stem for p in (ROOT / "ngsgd/launch").glob("*.py") if "@launchers.register" in p.read_text())
RUN = [sys.executable, str(ROOT / "utils" / "run.py")]


def run(*args, cwd, **env):
    return subprocess.run([*RUN, *args], cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=60)


def body(log):
    """What the command wrote into a log, between header and footer."""
    lines = Path(log).read_text().splitlines()
    return [line for line in lines[lines.index("#") + 1 :] if not line.startswith(("# Accounting", "# Ended"))]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_module_of_the_folder_is_a_launcher(name):
    assert callable(get_launcher(name))


NASTY = [
    "a b",
    "it's",
    '"q"',
    "x && y",
    "a|b",
    "*",
    "$1",
    "<unk>",
    "[0:9]",
    "ark:-|",
    "~/x",
    "\\",
    "",
    "#",
    "é",
    "a\nb",
    "`w`",
    "{1,2}",
]


def test_words_arrive_as_written(tmp_path):
    show = "import sys; print(sys.argv[1:])"
    assert run("log/a.log", sys.executable, "-c", show, *NASTY, cwd=tmp_path).returncode == 0
    assert body(tmp_path / "log/a.log") == [str(NASTY)]


STRANGE = 'it\'s a "job" && b | c; $x, 50%.JOB.log'


def test_log_may_have_any_name(tmp_path):
    done = run("JOB=1:2", f"log/{STRANGE}", "echo", "JOB", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert body(tmp_path / "log" / STRANGE.replace("JOB", "2")) == ["2"]


def test_awk_scripts_work_with_and_without_kaldis_backslash(tmp_path):
    words = ["echo", "a b", "|", "awk", "{print $2}", "&&", "echo", "a b", "|", "awk", "{print \\$2}"]
    assert run("a.log", *words, cwd=tmp_path).returncode == 0
    assert body(tmp_path / "a.log") == ["b", "b"]


def test_generated_command_is_valid_bash():
    for word in NASTY:
        subprocess.run(["bash", "-n", "-c", shell_command(["echo", word])], check=True)


def test_operators_and_redirections_are_the_shells(tmp_path):
    words = ["echo", "b", "|", "cat", "-", ">", "out.JOB", "&&", "echo", "$HERE", "2>&1", ";", "echo", "$[2+JOB]"]
    assert run("JOB=1:2", "JOB.log", *words, cwd=tmp_path, HERE="x y").returncode == 0
    assert (tmp_path / "out.2").read_text() == "b\n"
    assert body(tmp_path / "2.log") == ["x y", "4"]


def test_failed_pipe_fails_the_job(tmp_path):
    assert run("a.log", "false", "|", "cat", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x.JOB.ark", "x.7.ark"),
        ("wav_JOB.scp", "wav_7.scp"),
        ("split4/JOB/feats", "split4/7/feats"),
        ("JOBS/aJOB/JOB2", "JOBS/aJOB/JOB2"),
        ("--job=JOB", "--job=7"),
    ],
)
def test_job_is_replaced_as_a_word(text, expected):
    assert substitute(text, "JOB", 7) == expected


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "expected a log file and a command"),
        (["a.log"], "expected a log file and a command"),
        (["JOB=3:1", "JOB.log", "true"], "FIRST <= LAST"),
        (["JOB=1:x", "JOB.log", "true"], "not a job range"),
        (["JOB=1:4", "a.log", "true"], "4 jobs would write one log file"),
        (["x.JOB.log", "true"], "no JOB=1:N was given"),
        (["--max-jobs-run", "none", "a.log", "true"], "expected a positive number"),
        (["--max-jobs-run=0", "a.log", "true"], "expected a positive number"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(args, message, tmp_path):
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_folder_with_the_jobs_name_is_refused(tmp_path):
    (tmp_path / "JOB").mkdir()
    with pytest.raises(UsageError, match=r"JOB/x\.ark.*TASK=1:4"):
        parse(["JOB=1:4", "x.JOB.log", "cat", f"ark:{tmp_path}/JOB/x.ark"])
    assert parse(["TASK=1:4", "x.TASK.log", "cat", f"ark:{tmp_path}/JOB/x.ark"]).jobs == range(1, 5)


def test_options_in_either_order_and_kaldis_cluster_options():
    request = parse(
        ["-tc", "5", "--mem=2G", "JOB=2:3", "--max-jobs-run", "9", "-pe", "smp", "4", "x.JOB.log", "ls", "-l"]
    )
    assert request.options == {"max-jobs-run": 5, "mem": "2G"}
    assert request.ignored == ["-pe smp 4"]
    assert parse(["-S", "/bin/bash", "-V", "--fast", "yes", "x.log", "ls"]).ignored == [
        "--fast yes",
        "-S /bin/bash",
        "-V",
    ]
    assert (list(request.jobs), request.words) == ([2, 3], ["ls", "-l"])


def test_log_has_command_host_start_and_end(tmp_path):
    assert run("deep/er/a.log", "echo", "two words", cwd=tmp_path).returncode == 0
    lines = (tmp_path / "deep/er/a.log").read_text().splitlines()
    assert lines[0] == "# echo 'two words'"
    assert lines[1].startswith("# Running on ")
    assert lines[2].startswith("# Started at ")
    assert lines[4] == "two words"
    assert lines[5].startswith("# Accounting: time=")
    assert lines[6].startswith("# Ended (code 0) at ")
    assert lines[6].endswith(" seconds")


def test_failures_are_counted_and_the_first_is_shown(tmp_path):
    script = "echo line JOB; if [ JOB = 3 ]; then exit 3; elif [ JOB = 4 ]; then kill -9 $$; fi; touch done.JOB"
    done = run("JOB=1:5", "log/x.JOB.log", "bash", "-c", script, cwd=tmp_path)
    assert done.returncode == 1
    assert "2 of 5 jobs failed, log of job 3 (code 3) is in log/x.3.log\n  line 3\n" in done.stderr
    assert "# Ended (code 137; signal 9)" in (tmp_path / "log/x.4.log").read_text()
    assert {p.name for p in tmp_path.glob("done.*")} == {"done.1", "done.2", "done.5"}


def test_unwritable_log_is_a_failure_of_that_job(tmp_path):
    (tmp_path / "log.2").mkdir()
    done = run("JOB=1:3", "log.JOB", "touch", "done.JOB", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 of 3 jobs failed, log of job 2 (its log cannot be written: Is a directory)" in done.stderr
    assert {p.name for p in tmp_path.glob("done.*")} == {"done.1", "done.3"}


def test_missing_program_fails(tmp_path):
    done = run("a.log", "no-such-program-here", cwd=tmp_path)
    assert done.returncode == 1
    assert "code 127" in done.stderr
    assert "command not found" in done.stderr


def test_long_output_stays_in_the_log(tmp_path):
    done = run("a.log", "head", "-c", "10000000", "/dev/zero", "|", "tr", "\\0", "x", "&&", "false", cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr) < 10000
    assert (tmp_path / "a.log").stat().st_size > 10_000_000


def test_no_more_than_max_jobs_run_at_once(tmp_path):
    # Each job notes how many are there beside it; the directory of present jobs is the counter.
    script = "mkdir here/JOB; ls here | wc -l; sleep 0.05; rmdir here/JOB"
    (tmp_path / "here").mkdir()
    assert run("--max-jobs-run", "3", "JOB=1:12", "log/JOB.log", "bash", "-c", script, cwd=tmp_path).returncode == 0
    seen = [int(body(tmp_path / f"log/{job}.log")[0]) for job in range(1, 13)]
    assert max(seen) == 3


def test_max_tries_reruns_only_the_failed_job(tmp_path):
    script = "echo x >> tried.JOB; [ JOB = 1 ] || [ -e tried.1 ] && [ $(wc -l < tried.JOB) -ge JOB ]"
    done = run("--max-tries", "2", "JOB=1:2", "JOB.log", "bash", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "job 2 failed (code 1), trying it again (2 of 2)" in done.stderr
    assert [(tmp_path / f"tried.{job}").read_text() for job in (1, 2)] == ["x\n", "x\nx\n"]


def test_gpus_are_shared_out_one_a_job(tmp_path):
    script = "g=$CUDA_VISIBLE_DEVICES; mkdir gpu.$g && sleep 0.02 && rmdir gpu.$g && touch used.$g"
    done = run("--gpu", "1", "JOB=1:6", "JOB.log", "bash", "-c", script, cwd=tmp_path, CUDA_VISIBLE_DEVICES="4,7")
    assert (done.returncode, done.stderr) == (0, "")
    assert {p.name for p in tmp_path.glob("used.*")} == {"used.4", "used.7"}


def test_too_few_gpus_is_an_error_not_a_cpu_run(tmp_path):
    done = run("--gpu", "2", "a.log", "true", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode == 1
    assert "each job asks for 2 GPU(s), this machine offers 1" in done.stderr
    assert not (tmp_path / "a.log").exists()


def processes_in(folder):
    """Ids of the live processes whose working directory is `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == str(folder) and "(Z" not in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_every_child_and_exits_130(number, tmp_path):
    # A job that ignores SIGTERM's default (a pipeline with a grandchild) goes as well.
    words = ["touch", "on.JOB", ";", "bash", "-c", "sleep 100 & sleep 101", "|", "cat"]
    process = subprocess.Popen(
        [*RUN, "JOB=1:3", "--max-jobs-run", "2", "JOB.log", *words], cwd=tmp_path, stderr=-1, text=True
    )
    wait_for(lambda: len(processes_in(tmp_path)) >= 1 + 2 * 4, "the start of two jobs")
    process.send_signal(number)
    assert process.wait(20) == 130
    assert "ended 2 running job(s)" in process.stderr.read()
    assert "# Ended (code 143; signal 15)" in (tmp_path / "1.log").read_text()
    assert not (tmp_path / "3.log").exists()
    wait_for(lambda: processes_in(tmp_path) == [], "the end of the children")


def test_job_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    words = ["bash", "-c", "trap '' TERM; touch on; while :; do read -t 100 _ <> fifo; done"]
    os.mkfifo(tmp_path / "fifo")
    process = subprocess.Popen([*RUN, "a.log", *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "on").exists, "the start of the job")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 130
    wait_for(lambda: processes_in(tmp_path) == [], "the end of the job")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_killed_launcher_leaves_no_job(tmp_path):
    process = subprocess.Popen([*RUN, "JOB=1:2", "--max-jobs-run", "2", "JOB.log", "sleep", "100"], cwd=tmp_path)
    wait_for(lambda: len(processes_in(tmp_path)) == 3, "the start of two jobs")
    process.kill()
    process.wait()
    wait_for(lambda: processes_in(tmp_path) == [], "the end of the jobs")


def test_many_jobs_cost_little_beyond_their_processes(tmp_path):
    # Processor time, not elapsed time: other processes of the machine must not decide.
    before = os.times()
    assert run("JOB=1:500", "log/JOB.log", "true", cwd=tmp_path).returncode == 0
    after = os.times()
    assert len(list((tmp_path / "log").iterdir())) == 500
    assert (after.children_user + after.children_system - before.children_user - before.children_system) / 500 < 0.02


def test_start_imports_nothing_heavy(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *RUN[1:], "a.log", "true"], cwd=tmp_path, capture_output=True, text=True
    )
    imported = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not imported & {"numpy", "click", "scipy", "numba", "subprocess", "logging", "asyncio"}


def test_help_and_usage(tmp_path):
    assert "Usage: run.py" in run("--help", cwd=tmp_path).stdout
