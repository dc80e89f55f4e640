"""Fixtures of all tests: the checkout, its programs on PATH, and the reference files beside it."""

import os
import subprocess
import sys
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
