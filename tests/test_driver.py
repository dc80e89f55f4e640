"""The driver on fake programs: the same bytes after kills, failures told, diagnostics beside, the final choice."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ngsgd.train.diagnostics import Scores
from ngsgd.train.final import candidates
from ngsgd.train.options import TrainOptions

ROOT = Path(__file__).parents[1]
FAKES = ROOT / "tests" / "fakes"
PLAN_ROWS = 12
QUICK = f"--cmd={FAKES}/quick.sh"  # the smallest launcher, where launching is not the matter
SHORT = ("--num-epochs=2", "--num-epochs-extra=0")  # 4 iterations, of 2, 2, 3, 3 jobs


class Training:
    """A training directory with fake examples, and runs of the driver in it."""

    def __init__(self, folder: Path):
        sys.path.insert(0, str(FAKES))
        import drive
        import programs

        self.folder, self.dir = folder, folder / "exp"
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True)
        for name in programs.PROGRAMS:
            script = bin_folder / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {FAKES}/programs.py {name} "$@"\n')
            script.chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{bin_folder}:{ROOT}/utils:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FAKES": str(folder),
        }
        drive.prepare(self.dir)

    def start(self, *args):
        command = [sys.executable, str(FAKES / "drive.py"), str(self.dir), *args]
        return subprocess.Popen(command, env=self.env, stderr=subprocess.PIPE, text=True)

    def run(self, *args):
        """Exit status and stderr."""
        process = self.start(*args)
        error = process.communicate(timeout=120)[1]
        return process.returncode, error

    def fail(self, *lines):
        (self.folder / "fail").write_text("".join(line + "\n" for line in lines))

    def json(self, name):
        return json.loads((self.dir / name).read_text())

    def models(self):
        return sorted(int(p.stem) for p in self.dir.glob("*.mdl") if p.stem.isdecimal())

    def table(self):
        lines = [line.split("\t") for line in (self.dir / "progress.tsv").read_text().splitlines()]
        return [dict(zip(lines[0], line)) for line in lines[1:]]


@pytest.fixture
def training(tmp_path):
    return Training(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A finished training, never interrupted."""
    made = Training(tmp_path_factory.mktemp("undisturbed"))
    status, made.stderr = made.run(QUICK)
    assert status == 0, made.stderr
    return made


def test_trains_to_the_final_model(undisturbed):
    final = undisturbed.json("final.mdl")
    assert final["layers"] == 2
    assert final["priors"] == "egs.1.ark ark:- |"
    # Held-out log-prob is best at age 6: the ten best models and the latest, worst first, the best one last.
    assert final["of"][-1] == 6
    assert set(final["of"]) == set(range(2, PLAN_ROWS + 1))
    assert final["fit"] == "40"


def test_leftovers_are_removed_and_every_tenth_model_kept(undisturbed):
    assert undisturbed.models() == [0, 10, 12]
    assert sorted(p.name for p in undisturbed.dir.glob("*.*.mdl")) == []
    assert list((undisturbed.dir / "jobs").iterdir()) == []


def test_progress_is_shown_and_kept(undisturbed):
    lines = [line for line in undisturbed.stderr.splitlines() if line.startswith("iteration ")]
    assert len(lines) == PLAN_ROWS + 1
    assert lines[0] == "iteration 0/12, train -1.000 (50.0 %), valid -0.860 (50.0 %)" or "left" in lines[0]
    assert "iteration 6/12, epoch 2.0, 2 jobs at rate 0.00383, train -0.143 (50.0 %)" in lines[6]
    assert "valid -0.500 (50.0 %)" in lines[6]
    assert "frames/s" in lines[6]
    assert "final model: train" in undisturbed.stderr
    words = "overfitting: held-out log-prob was best after iteration 6 (-0.500) and has fallen to -0.590 while"
    assert undisturbed.stderr.count(words) == undisturbed.stderr.count("overfitting") == 1
    table = undisturbed.table()
    assert [row["model"] for row in table] == [str(x) for x in range(PLAN_ROWS + 1)]
    assert all(float(row["valid_logprob"]) < -0.4 for row in table)
    assert all(int(row["frames"]) == 1000 * int(row["jobs"]) for row in table[1:])


def test_the_models_rate_is_that_of_its_jobs(undisturbed):
    # Model 10 carries the rate of iteration 10's jobs: the epochs of falling rate are over at 8 of 12 iterations.
    row = undisturbed.table()[11]
    assert undisturbed.json("10.mdl")["rate"] == pytest.approx(float(row["learning_rate"]), rel=1e-6)


def test_a_finished_training_does_nothing(undisturbed):
    before = (undisturbed.dir / "final.mdl").stat().st_mtime_ns
    status, error = undisturbed.run(QUICK)
    assert status == 0
    assert (undisturbed.dir / "final.mdl").stat().st_mtime_ns == before
    assert "iteration" not in error


@pytest.fixture(scope="module")
def undisturbed_short(tmp_path_factory):
    made = Training(tmp_path_factory.mktemp("short"))
    status, error = made.run(QUICK, *SHORT)
    assert status == 0, error
    return made


@pytest.mark.parametrize("victims", ["driver", "job"])
def test_killed_anywhere_it_ends_with_the_same_bytes(training, undisturbed_short, victims):
    kill_and_compare(training, undisturbed_short, victims, 2, SHORT)


@pytest.mark.parametrize("averaging", ["running", "nesterov"])
def test_killed_anywhere_the_state_of_averaging_goes_on(training, tmp_path, averaging):
    args = (*SHORT, f"--averaging={averaging}", "--mix-up=9", "--mix-up-epoch=1.4", "--realign-epochs=0.6 1.1")
    reference = Training(tmp_path / "reference")
    status, error = reference.run(QUICK, *args)
    assert status == 0, error
    assert reference.json("final.mdl")["outputs"] == 9
    for pattern in (
        "nnet-copy .*/2.in.mdl|nnet-copy .*3.mdl$",
        "nnet-train-ngsgd .*/3.2.mdl$",
        "nnet-average .*/4.mdl$",
    ):
        training.fail(pattern)
        assert training.run(QUICK, *args)[0] == 1
        training.fail()
    kill_and_compare(training, reference, "driver", 1, args)
    assert sorted(p.name for p in training.dir.glob("realign.*/egs.*")) == ["egs.1.ark", "egs.2.ark", "egs.3.ark"]
    new = training.dir / "realign.2"
    assert (new / "egs.2.ark").read_text() == "archive 2\n" + (new / "ali.1.gz").read_text()
    assert not [p.name for p in training.dir.iterdir() if p.name.startswith(("start.", "state."))]


def test_layers_are_shrunk_and_neurons_repaired_where_the_plan_says(training):
    assert training.run(QUICK, *SHORT, "--shrink-interval=3", "--final=last", "--cleanup=false")[0] == 0
    assert "fit" in training.json("4.mdl") and "fit" not in training.json("3.mdl")


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["driver", "job"])
def test_killed_twenty_times_it_ends_with_the_same_bytes(training, undisturbed, victims):
    kill_and_compare(training, undisturbed, victims, 20, ())


def kill_and_compare(training, reference, victims, kills, args):
    """Kill the driver, or one of its jobs, at random moments; the last run must end with the reference's model."""
    rng = random.Random(f"{victims} {kills}")
    for _ in range(kills):
        process = training.start(*args)
        try:
            process.communicate(timeout=rng.uniform(0.3, 1.2))
        except subprocess.TimeoutExpired:
            if victims == "driver":
                process.kill()
            else:
                kill_a_program(training, rng)
            process.communicate()
    status, error = training.run(*args)
    assert status == 0, error
    assert (training.dir / "final.mdl").read_bytes() == (reference.dir / "final.mdl").read_bytes()
    assert training.models() == reference.models()


def programs_of(training):
    """Process ids of the fake programs at work for this training."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if "programs.py" in command and str(training.dir) in command:
            found.append(int(entry.name))
    return found


def kill_a_program(training, rng):
    """Kill one of the programs with SIGKILL as soon as there is one."""
    for _ in range(1000):
        if found := programs_of(training):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
                return


def test_a_failed_job_alone_is_done_again(training):
    training.fail("nnet-train-ngsgd .*/3.2.mdl$")
    status, error = training.run(*SHORT)
    assert status == 1
    assert "run.py: 1 of 3 jobs failed, log of job 2 (code 3)" in error
    assert "failing as told" in error
    assert "ERROR iteration 2: 1 of 3 jobs failed, at learning rate 0.00" in error
    assert "see " + str(training.dir / "log/train.2.2.log") in error
    assert sorted(p.name for p in training.dir.glob("3.*.mdl")) == ["3.1.mdl", "3.3.mdl"]
    training.fail("nnet-train-ngsgd .*/3.[13].mdl$")  # these must not be run again
    status, error = training.run(*SHORT)
    assert status == 0, error


def test_max_tries_does_it_at_once(training):
    training.fail("once nnet-train-ngsgd .*/3.2.mdl$")
    status, error = training.run(QUICK, *SHORT, "--max-tries=2")
    assert status == 0
    assert "iteration 2: trying jobs [2] again" in error


def test_diagnostics_do_not_hold_up_the_training(training):
    gate = training.folder / "gate"
    os.mkfifo(gate)
    process = training.start(QUICK, *SHORT, "--final=last")
    wait_for(lambda: (training.dir / "4.mdl").exists(), "training while the scores of model 0 were not there")
    assert not (training.dir / "stats/valid.0.json").exists()
    assert (training.dir / "0.mdl").exists()  # kept as long as its scores are to come
    with gate.open("w"):
        gate.rename(training.folder / "open")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "iteration 4/4" in error


def wait_for(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.01)


def test_failed_diagnostics_are_told_and_tried_again(training):
    training.fail("once nnet-compute-prob .*/3.mdl .*valid")
    status, error = training.run(QUICK, *SHORT)
    assert status == 0
    assert "diagnostics of model 3 failed; see" in error
    assert "trying it once more" in error
    assert len(training.table()) == 5


def test_what_only_the_report_wants_may_fail(training):
    training.fail("nnet-show-progress .*/3.mdl$")
    status, error = training.run(QUICK, *SHORT)
    assert status == 0
    log = training.dir / "log/compute_prob.3.log"
    assert f"diagnostics of model 3 failed; see {log}; the report does without what came after the scores" in error
    assert [row["valid_logprob"] != "" for row in training.table()] == [True] * 5
    assert sorted(p.name for p in (training.dir / "stats").glob("change.*")) == ["change.1.json", "change.4.json"]


def test_the_jobs_figures_are_noted_although_a_killed_driver_could_not(training):
    assert training.run(QUICK, *SHORT, "--cleanup=false")[0] == 0
    before = training.table()
    for name in ("progress.tsv", "final.mdl", "stats/train.final.json"):
        (training.dir / name).unlink()
    assert training.run(QUICK, *SHORT, "--cleanup=false")[0] == 0
    known = ("model", "epoch", "jobs", "learning_rate", "frames", "slowest_job_s", "job_objective", "valid_logprob")
    assert [[row[n] for n in known] for row in training.table()] == [[row[n] for n in known] for row in before]
    assert all(row["seconds"] == "" for row in training.table())
    assert all(row["seconds"] != "" for row in before[1:])


def test_scores_that_cannot_be_had_stop_the_choice_but_not_the_training(training):
    training.fail("nnet-compute-prob .*/1.mdl .*valid")
    status, error = training.run(QUICK, *SHORT)
    assert status == 1
    assert (training.dir / "4.mdl").exists()
    assert "ERROR no scores of model 1: see" in error
    training.fail()
    assert training.run(QUICK, *SHORT)[0] == 0
    assert [row["valid_logprob"] != "" for row in training.table()] == [True] * 5


def test_last_takes_the_last_model_even_without_scores(training):
    training.fail("nnet-compute-prob .*/3.mdl .*valid")
    status, error = training.run(QUICK, *SHORT, "--final=last")
    assert status == 0, error
    assert training.json("final.mdl")["age"] == 4
    assert "of" not in training.json("final.mdl")


def test_choose_does_not_fit_weights(training):
    assert training.run(QUICK, *SHORT, "--final=choose", "--max-models-combine=2")[0] == 0
    final = training.json("final.mdl")
    assert final["of"] == [3, 4]
    assert final["fit"] == "0"


def test_candidates_are_the_best_and_the_latest_worst_first():
    scores = {x: Scores(-abs(x - 6.1), 0.5, -1.0, 0.5) for x in range(13)}
    options = TrainOptions(max_models_combine=5)
    assert candidates(scores, 2, 12, options) == [12, 11, 10, 7, 6]
    assert candidates(scores, 2, 7, options) == [3, 4, 5, 7, 6]
    assert candidates(scores, 2, 3, options) == [2, 3]
    assert candidates(scores, 2, 12, TrainOptions(final="last")) == [12]
    # What is not a candidate and not among the latest never comes back: it may be deleted.
    for options in (TrainOptions(max_models_combine=n) for n in (1, 2, 5, 20)):
        kept = set()
        for last in range(3, 13):
            known = {x: s for x, s in scores.items() if x <= last}
            found = set(candidates(known, 2, last, options))
            assert found <= kept | set(range(last + 1 - options.max_models_combine, last + 1))
            kept = found


def test_early_stopping_ends_after_the_best_model(training):
    status, error = training.run(QUICK, "--early-stop-epochs=1")
    assert status == 0
    assert "stopping before iteration 11: no model was better on held-out frames than that of iteration 6" in error
    assert max(training.models()) == 10
    assert training.json("final.mdl")["of"][-1] == 6


def test_changed_options_are_refused_with_the_difference(training):
    training.fail("nnet-train-ngsgd .*/2.1.mdl$")
    assert training.run(QUICK)[0] == 1
    before = sorted(training.dir.glob("*.mdl"))
    status, error = training.run(QUICK, "--num-epochs=7", "--seed=3")
    assert status == 1
    assert "begun with other options: --num-epochs was 4, is 7; --seed was 0, is 3;" in error
    assert "--overwrite" in error
    assert sorted(training.dir.glob("*.mdl")) == before


def test_an_option_newer_than_the_record_was_at_its_default(training):
    training.fail("nnet-train-ngsgd .*/2.1.mdl$")
    assert training.run(QUICK, *SHORT)[0] == 1
    record = training.dir / "train.conf"
    record.write_text("".join(line + "\n" for line in record.read_text().splitlines() if "--update-rule" not in line))
    status, error = training.run(QUICK, *SHORT, "--update-rule=sgd")
    assert status == 1
    assert "begun with other options: --update-rule was online, is sgd;" in error
    training.fail()
    assert training.run(QUICK, *SHORT)[0] == 0


def test_how_it_is_run_may_change(training):
    training.fail("nnet-train-ngsgd .*/2.1.mdl$")
    assert training.run(QUICK, *SHORT)[0] == 1
    training.fail()
    assert training.run("--cmd=run.py --max-jobs-run 1", *SHORT, "--cleanup=false")[0] == 0
    assert training.models() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_all_jobs_and_exits_130(training, number):
    os.mkfifo(training.folder / "gate")  # holds up the scores of model 0, so that there is a job to be ended
    process = training.start(*SHORT)
    wait_for(lambda: len(programs_of(training)) >= 1 and (training.dir / "1.mdl").exists(), "jobs")
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "ending the jobs; the same command goes on from here" in error
    assert f"interrupted ({signal.Signals(number).name})" in (training.dir / "report.html").read_text()
    wait_for(lambda: programs_of(training) == [], "end of the jobs")


def test_a_second_driver_waits_for_the_first(training):
    first = training.start(QUICK, *SHORT)
    wait_for(lambda: (training.dir / "1.mdl").exists(), "first model")
    second = training.start(QUICK, *SHORT)
    errors = []
    threads = [threading.Thread(target=lambda p=p: errors.append(p.communicate()[1])) for p in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (first.returncode, second.returncode) == (0, 0)
    assert sum("another training, or a job of one, is at work here" in error for error in errors) == 1
    assert sum("iteration 4/4" in error for error in errors) == 1


def test_not_finite_objective_stops_and_is_named(training):
    training.fail("nnet-train-ngsgd .*/3.1.mdl$")
    assert training.run(QUICK, *SHORT)[0] == 1
    (training.dir / "3.1.mdl").write_text((training.dir / "3.2.mdl").read_text())
    (training.dir / "stats/job.2.1.json").write_text('{"frames": 10, "seconds": 1.0, "objective_per_frame": NaN}')
    status, error = training.run(QUICK, *SHORT)
    assert status == 1
    assert "job.2.1.json: expected a finite number for objective_per_frame, got nan" in error
    assert not (training.dir / "3.mdl").exists()


def test_missing_archive_is_named_before_any_job(training):
    (training.dir / "egs/egs.2.ark").unlink()
    status, error = training.run(QUICK)
    assert status == 1
    assert f"{training.dir}/egs/egs.2.ark is not there; iteration 0 of the plan needs it" in error


def test_no_launcher_of_that_name(training):
    status, error = training.run("--cmd=no-such-launcher --x")
    assert status == 1
    assert "--cmd: no launcher 'no-such-launcher --x' on PATH" in error
