"""The shell tests: every tests/shell/test_*.sh ends with status 0."""

import subprocess
from pathlib import Path

import pytest
from conftest import environment

SCRIPTS = sorted(Path(__file__).with_name("shell").glob("test_*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_shell(script):
    result = subprocess.run(["bash", script], env=environment(), capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 failed" in result.stdout
