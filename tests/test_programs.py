"""What every program in bin/ promises: help, usage errors, missing and empty input (DESIGN, conventions 1 and 8)."""

import os
import re
import resource
from pathlib import Path

import pytest

PROGRAMS = sorted(p.name for p in (Path(__file__).parents[1] / "bin").iterdir() if p.is_file())
WITH_ARGUMENTS = [p for p in PROGRAMS if p != "ngsgd-doctor"]


def usage_of(help_text: str) -> list[str]:
    """The positional arguments named in the `Usage:` line."""
    line = re.search(r"^Usage:(.*)$", help_text, re.MULTILINE)
    assert line, "no 'Usage:' line"
    words = line[1].split()[1:]
    return [w for w in words if not w.startswith("[")]


def _cpu_seconds_of_children() -> float:
    """Processor time, which is the elapsed time of a program on a machine that has nothing else to do."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_complete_and_quick(program, run, repo):
    assert os.access(repo / "bin" / program, os.X_OK)
    seconds = []
    for _ in range(3):
        start = _cpu_seconds_of_children()
        result = run(program, "--help")
        seconds.append(_cpu_seconds_of_children() - start)
    assert min(seconds) < 0.5
    assert re.search(rf"^Usage: {program}\b", result.stdout, re.MULTILINE)
    assert re.search(r"^\s*e\.g\.: ", result.stdout, re.MULTILINE)
    assert "Options:" in result.stdout


@pytest.mark.parametrize("program", WITH_ARGUMENTS)
def test_usage_errors_exit_2(program, run, tmp_path):
    unknown = run(program, "--no-such-option=1", status=2)
    assert "no-such-option" in unknown.stderr
    run(program, status=2)
    assert not list(tmp_path.iterdir())


def _arguments(program: str, help_text: str, first: str) -> list[str]:
    """Arguments of the right number; every input is `first`-like, the last is an output."""
    names = usage_of(help_text)
    table = [bool(re.search("SPECIFIER|EGS|FEATS|ALI|TABLE|GRAPHS|ARK", n.upper())) for n in names]
    return [f"ark:{first}" if is_table else first for is_table in table]


@pytest.mark.parametrize("program", WITH_ARGUMENTS)
@pytest.mark.parametrize("kind", ["missing", "empty", "garbage"])
def test_bad_input_is_one_line_and_exit_1(program, kind, run, tmp_path):
    path = tmp_path / f"{kind}.input"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "garbage":
        path.write_bytes(bytes(range(256)) * 10)
    arguments = _arguments(program, run(program, "--help").stdout, str(path))
    output = tmp_path / "output"
    arguments[-1] = f"ark:{output}" if arguments[-1].startswith("ark:") else str(output)
    if len(arguments) == 1:
        arguments = [str(path)]
    result = run(program, *arguments, status=None)
    message = [line for line in result.stderr.splitlines() if line.strip()]
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert message and message[-1].startswith("ERROR ")
    assert not output.exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_option_hides_an_argument(program, run):
    """click warns when two parameters have one name, and then loses one of them."""
    assert "Warning" not in run(program, "--help").stderr


IMPOSSIBLE = """
acc-lda --rand-prune=-1
est-lda --dim=0
est-lda --shrinkage=2
est-mllt --num-iters=0
gmm-acc-mllt --silence-weight=-1
nnet-adjust-priors --minibatch-size=0
nnet-adjust-priors --prior-floor=-1
nnet-align --beam=0
nnet-align --retry-beam=-1
nnet-align --acoustic-scale=nan
acc-tree-stats --context-width=0
acc-tree-stats --var-floor=0
build-tree --max-leaves=-1
build-tree --thresh=-5
cluster-phones --num-classes=1
compile-questions --num-iters-refine=-1
gmm-align-compiled --beam=-3
gmm-plan --start-gauss=-2
nnet-combine --minibatch-size=-4
nnet-combine --num-lbfgs-iters=-1
nnet-compute --block-size=0
nnet-compute-from-egs --minibatch-size=0
nnet-compute-prob --minibatch-size=0
nnet-copy --learning-rate-factor=-1
nnet-train-ngsgd --minibatch-size=0
nnet-train-ngsgd --frame=-5
nnet-train-ngsgd --minibatches-per-phase=0
nnet-train-ngsgd --divergence-margin=-1
nnet-fix --min-average-deriv=2
nnet-get-feature-transform --within-class-factor=nan
nnet-init --srand=-1
nnet-insert --srand=-2
nnet-make-config --rank-in=0
nnet-make-config --hidden-layers=0
nnet-mixup --num-mixtures=0
nnet-modify-learning-rates --last-layer-factor=0
nnet-normalize-stddev --stddev=0
nnet-replace-last-layers --remove-layers=-1
nnet-show-progress --num-segments=0
nnet-switch-preconditioning --rank-out=-80
nnet-switch-preconditioning --update-period=0
nnet-widen --hidden-layer-dim=0
"""


@pytest.mark.parametrize("command", IMPOSSIBLE.strip().splitlines())
def test_impossible_values_of_options_are_usage_errors(command, call, repo, tmp_path):
    program, option = command.split()
    arguments = usage_of((repo / "bin" / program).read_text())
    result = call(program, option, *["missing" for _ in arguments], status=2)
    name, _, value = option.partition("=")
    assert re.search(rf"{name}: expected .*(at least|above|at most|number).*, got {value}", result.stderr)
    assert not list(tmp_path.iterdir())
