"""Fixtures of all tests: the checkout, its programs on PATH, and the reference files beside it."""

import logging
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("NGSGD_SHARED", REPO.parent / "shared"))


def environment() -> dict[str, str]:
    """The environment that a recipe's path.sh makes."""
    path = os.pathsep.join([str(REPO / d) for d in ("bin", "steps", "utils")] + [str(Path(sys.executable).parent)])
    return {
        **os.environ,
        "PATH": path + os.pathsep + os.environ["PATH"],
        "PYTHONPATH": str(REPO),
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return REPO


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with files made by real Kaldi and with real speech; tests that want it are skipped without it."""
    if not (SHARED / "golden").is_dir():
        pytest.skip("the reference files (shared/golden beside the checkout, or NGSGD_SHARED) are not here")
    return SHARED


@pytest.fixture(scope="session")
def golden(shared) -> Path:
    """Files made by real Kaldi."""
    return shared / "golden"


@pytest.fixture
def run(tmp_path):
    """Run a program or step as a user would, in an empty directory: `run("nnet-info", "x.mdl", status=0)`."""

    def call(*command, status: int | None = 0, cwd=tmp_path, env=None, stdin=None, text=True):
        result = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**environment(), **(env or {})},
            input=stdin,
            capture_output=True,
            text=text,
            timeout=300,
        )
        if status is not None:
            assert result.returncode == status, (
                f"{command} exited {result.returncode}:\n{result.stdout}\n{result.stderr}"
            )
        return result

    return call


@pytest.fixture
def call(repo, tmp_path, capsys, monkeypatch):
    """As `run`, for a program of bin/ and within this process: quicker, and a warning of numpy's is an error."""

    def call(program, *args, status: int = 0):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [program])
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            with warnings.catch_warnings(), pytest.raises(SystemExit) as exit:
                warnings.simplefilter("error", RuntimeWarning)
                runpy.run_path(str(repo / "bin" / program))["main"]([str(word) for word in args])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        output = capsys.readouterr()
        assert exit.value.code == status, f"{program} {args} exited {exit.value.code}:\n{output.out}\n{output.err}"
        return subprocess.CompletedProcess([program, *args], exit.value.code, output.out, output.err)

    return call
