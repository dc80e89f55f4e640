"""steps/train_ngsgd.py as a user calls it: refusals before any work, and a real small training, killed and resumed."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import environment
from test_launch import processes_in, wait_for

NEED = ("data/feats.scp", "data/cmvn.scp", "data/utt2spk", "lang/topo", "lang/phones.txt", "lang/phones/silence.csl")
NEED_ALI = ("ali/final.mdl", "ali/tree", "ali/num_jobs", "ali/ali.1.gz")


@pytest.fixture
def inputs(tmp_path):
    """Directories with empty files of the right names."""
    for name in (*NEED, *NEED_ALI):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize("name", [*NEED, *NEED_ALI])
def test_a_missing_input_is_named_and_nothing_begun(run, inputs, name):
    (inputs / name).unlink()
    result = run("train_ngsgd.py", "data", "lang", "ali", "exp", status=1)
    assert result.stderr == f"ERROR (train_ngsgd.py) no such file: {name}\n"
    assert not (inputs / "exp").exists()


def test_other_phones_are_refused(run, inputs):
    (inputs / "ali/phones.txt").write_text("a 1\n")
    assert "different phones" in run("train_ngsgd.py", "data", "lang", "ali", "exp", status=1).stderr


def test_impossible_options_are_refused(run, inputs):
    result = run("train_ngsgd.py", "--hidden-layers=0", "data", "lang", "ali", "exp", status=2)
    assert "--hidden-layers: expected at least 1, got 0" in result.stderr
    assert run("train_ngsgd.py", "--final=best", "data", "lang", "ali", "exp", status=2).stdout == ""
    assert not (inputs / "exp").exists()


def test_directory_that_is_a_file(run, inputs):
    (inputs / "exp").write_text("")
    assert "cannot write into exp" in run("train_ngsgd.py", "data", "lang", "ali", "exp", status=1).stderr


@pytest.fixture
def golden_inputs(inputs, golden):
    """As `inputs`, with those files whose contents are compared: of Kaldi's triphones."""
    for name in ("ali/final.mdl", "ali/tree"):
        (inputs / name).write_bytes((golden / "gmm/tri3b_ali" / Path(name).name).read_bytes())
    (inputs / "lang/topo").write_bytes((golden / "lang/topo").read_bytes())
    (inputs / "ali/num_jobs").write_text("1\n")
    return inputs


def test_examples_with_too_little_context_are_refused(run, golden_inputs, golden):
    egs = golden / "nnet2/egs"
    result = run("train_ngsgd.py", f"--egs-dir={egs}", "data", "lang", "ali", "exp", status=1)
    assert "a left context of 3 frames, the network wants 4: give --left-context or make new examples" in result.stderr


def test_dry_run_writes_the_plan_of_kaldis_examples_and_no_model(run, golden_inputs, golden):
    inputs = golden_inputs
    args = (f"--egs-dir={golden / 'nnet2/egs'}", "--left-context=3", "--right-context=3", "data", "lang", "ali", "exp")
    result = run("train_ngsgd.py", "--dry-run", "--num-epochs=3", *args)
    assert "plan: 8 iterations of 4 to 4 jobs" in result.stderr
    lines = (inputs / "exp/plan.tsv").read_text().splitlines()
    assert len(lines) == 9
    assert list((inputs / "exp").glob("*.mdl")) == []
    (inputs / "exp/plan.tsv").write_text("\n".join(lines).replace("1,1,1,1", "1,1,1,2", 1) + "\n")
    result = run("train_ngsgd.py", "--dry-run", "--num-epochs=3", *args, status=1)
    assert "iteration 0 asks for archive or frame 2; the examples have archives 1 to 1" in result.stderr
    result = run("train_ngsgd.py", "--dry-run", "--num-epochs=3", "--overwrite", *args)
    assert (inputs / "exp/plan.tsv").read_text().splitlines() == lines


def test_other_examples_or_alignments_of_the_same_names_are_refused(run, golden_inputs, golden):
    shutil.copytree(golden / "nnet2/egs", golden_inputs / "egs", copy_function=shutil.copyfile)
    args = ("--dry-run", "--egs-dir=egs", "--left-context=3", "--right-context=3", "data", "lang", "ali", "exp")
    run("train_ngsgd.py", *args)
    shutil.copyfile(golden / "nnet2/egs/combine.egs", golden_inputs / "egs/egs.1.ark")
    refused = run("train_ngsgd.py", *args, status=1).stderr
    assert "exp was begun with other data: examples was 1 archives of 7 frames" in refused
    assert refused.count("\n") == 1 and "--overwrite to begin anew" in refused
    (golden_inputs / "exp/final.mat").write_text("of the other alignments")
    run("train_ngsgd.py", "--overwrite", *args)
    assert not (golden_inputs / "exp/final.mat").exists()
    with (golden_inputs / "ali/final.mdl").open("ab") as file:
        file.write(b"\n")
    assert "alignments was final.mdl" in run("train_ngsgd.py", *args, status=1).stderr


SMALL = (
    *(
        "--num-epochs=2",
        "--num-epochs-extra=0",
        "--num-jobs-initial=2",
        "--num-jobs-final=2",
        "--min-passes=4",
        "--nj=2",
    ),
    *("--pnorm-input-dim=60", "--pnorm-output-dim=20", "--num-utts-subset=10", "--egs-opts=--delta-order 2"),
)


@pytest.fixture
def golden_data(run, golden, tmp_path):
    """A data directory of the golden training features, and monophone alignments."""
    (tmp_path / "data").mkdir()
    (tmp_path / "ali").mkdir()
    feats = " ".join(str(golden / f"feats/raw_mfcc_train.{j}.ark") for j in (1, 2))
    run("copy-feats", f"ark:cat {feats} |", "ark,scp:data/feats.ark,data/feats.scp")
    run("copy-feats", f"ark:{golden}/feats/cmvn_train.ark", "ark,scp:data/cmvn.ark,data/cmvn.scp")
    keys = [line.split()[0] for line in (tmp_path / "data/feats.scp").read_text().splitlines()]
    (tmp_path / "data/utt2spk").write_text("".join(f"{key} {key.split('-')[0]}\n" for key in keys))
    for name in ("final.mdl", "tree", "ali.1.gz", "ali.2.gz", "num_jobs"):
        (tmp_path / "ali" / name).write_bytes((golden / "gmm/mono" / name).read_bytes())
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        (),
        ("--nonlinearity=tanh", "--hidden-dim=48", "--shrink-interval=2", "--averaging=nesterov", "--mix-up=200"),
        ("--nonlinearity=maxout", "--splice-indexes=layer0/-1:0:1 layer1/-2:1", "--averaging=running"),
    ],
)
def test_real_training_learns_and_survives_kills(run, golden, golden_data, choices):
    command = ("train_ngsgd.py", *SMALL, *choices, "data", golden / "lang")
    result = run(*command, "ali", "exp/a")
    first, last = (result.stderr.split(f"iteration {x}")[1].split("valid ")[1].split(" ")[0] for x in ("0/", "5/"))
    assert float(last) > float(first) + 1.5
    for delay in (4, 9, 14):
        process = subprocess.Popen(
            [str(word) for word in (*command, "ali", "exp/b")],
            cwd=golden_data,
            env=environment(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.1)
    run(*command, "ali", "exp/b")
    assert (golden_data / "exp/a/final.mdl").read_bytes() == (golden_data / "exp/b/final.mdl").read_bytes()


@pytest.mark.slow
def test_interrupt_while_making_examples_ends_the_jobs(run, golden, golden_data):
    command = ["train_ngsgd.py", *SMALL, "data", str(golden / "lang"), "ali", "exp/c"]
    process = subprocess.Popen(
        command, cwd=golden_data, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    log = golden_data / "exp/c/egs/log/make_egs.1.log"
    wait_for(log.exists, "the start of making examples")
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "ending the jobs; the same command goes on from here" in error
    wait_for(lambda: processes_in(golden_data) == [], "the end of the jobs")
    result = run(*command)
    assert "iteration 5/5" in result.stderr
    assert "is there already" in run(*command).stderr
