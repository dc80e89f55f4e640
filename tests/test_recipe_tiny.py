"""The small recipe, end to end as a user runs it; and killed again and again on the way."""

import os
import random
import shutil
import signal
import subprocess

import pytest
from conftest import environment

KILLS = 4


@pytest.fixture
def checkout(repo, tmp_path):
    """A checkout with nothing done yet: the recipe is a copy, everything else is linked."""

    def make(name):
        root = tmp_path / name
        (root / "egs").mkdir(parents=True)
        for entry in ("ngsgd", "bin", "steps", "utils", "local", "setup.cfg"):
            (root / entry).symlink_to(repo / entry)
        shutil.copytree(repo / "egs/tiny", root / "egs/tiny", ignore=shutil.ignore_patterns("data", "exp"))
        return root / "egs/tiny"

    return make


def start(recipe, *options):
    env = {**environment(), "VIRTUAL_ENV": os.environ.get("VIRTUAL_ENV", "active")}
    return subprocess.Popen(
        ["./run.sh", *options],
        cwd=recipe,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output[-3000:]
    return output


def rates(output):
    """WER by decoding, of the table that the recipe ends with."""
    lines = output[output.index("decoding ") :].splitlines()[1:]
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("exp/")}


def test_from_recordings_to_error_rates(checkout):
    recipe = checkout("once")
    found = rates(finish(start(recipe)))
    assert found["exp/mono/decode_test"] < 12
    assert found["exp/nnet/decode_test"] < 20
    again = finish(start(recipe))
    assert again.count("done before, skipped") == 9
    assert rates(again) == found


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_model(checkout):
    undisturbed, killed = checkout("undisturbed"), checkout("killed")
    expected = rates(finish(start(undisturbed)))
    moments = random.Random(int.from_bytes(os.urandom(4), "little"))
    for _ in range(KILLS):
        process = start(killed)
        seconds = moments.uniform(1, 25)
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            print(f"killed after {seconds:.1f} s")
    assert rates(finish(start(killed))) == expected
    for model in ("exp/mono/final.mdl", "exp/nnet/final.mdl"):
        assert (killed / model).read_bytes() == (undisturbed / model).read_bytes(), model
