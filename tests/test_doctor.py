"""What `ngsgd-doctor` finds wrong, says, and exits with."""

import importlib.metadata
import shutil
import sys

import pytest

from ngsgd import doctor
from ngsgd.doctor import NOTE, OK, WRONG, compare_requirements
from tests.conftest import environment


def findings(output: str, topic: str) -> str:
    """The lines about a topic, with what to do."""
    lines = output.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line[7:27].strip() == topic:
            found.append(line)
            if number + 1 < len(lines) and "->" in lines[number + 1]:
                found.append(lines[number + 1])
    return "\n".join(found)


def test_a_machine_that_is_well(run):
    result = run("ngsgd-doctor")
    assert result.stdout.splitlines()[-1] == "ngsgd can be used here."
    assert WRONG not in result.stdout
    for topic, text in (
        ("Python", ".".join(map(str, sys.version_info[:3]))),
        ("ngsgd", "(checkout)"),
        ("numpy", f"{importlib.metadata.version('numpy')} (at least "),
        ("kaldi-decoder", "(at least "),
        ("BLAS", "OPENBLAS_NUM_THREADS=1"),
        ("programs", "bin"),
        ("GPU", ""),
        ("launcher", 'cmd="run.py"'),
        ("temporary files", "GiB free"),
        ("locale", "LC_ALL=C"),
    ):
        line = findings(result.stdout, topic)
        assert line.startswith((OK, NOTE)) and text in line, (topic, line)


def test_versions_are_compared_with_the_bounds_as_numbers():
    installed = importlib.metadata.version("numpy")
    lines = ["", f"numpy >= {installed}", "numpy>=999.1", "no-such-package >= 1.2", "click >= 8.1.7"]
    levels = [(f.level, f.topic, f.text, f.todo) for f in compare_requirements(lines)]
    assert levels[0] == (OK, "numpy", f"{installed} (at least {installed})", "")
    assert levels[1] == (WRONG, "numpy", f"{installed}, at least 999.1 is needed", "pip install 'numpy>=999.1'")
    assert levels[2] == (WRONG, "no-such-package", "not installed", "pip install 'no-such-package>=1.2'")
    assert levels[3][0] == OK
    assert [f.level for f in compare_requirements(["pytest >= 7.100.0"])] == [OK]  # 8 is more than 7.100


def test_a_package_that_cannot_be_imported(tmp_path, monkeypatch):
    (tmp_path / "broken_thing").mkdir()
    (tmp_path / "broken_thing" / "__init__.py").write_text("raise OSError('libsomething.so: cannot open')")
    (tmp_path / "broken_thing-2.0.dist-info").mkdir()
    (tmp_path / "broken_thing-2.0.dist-info" / "METADATA").write_text("Name: broken_thing\nVersion: 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [finding] = compare_requirements(["broken_thing >= 1"])
    assert finding.level == WRONG
    assert "2.0 cannot be imported: libsomething.so: cannot open" in finding.text
    assert "--force-reinstall" in finding.todo


def test_what_is_needed_is_read_from_the_checkout_and_all_there():
    names = {line.split(">=")[0].strip() for line in doctor.requirements() if line.strip()}
    assert {"numpy", "scipy", "numba", "soundfile", "kaldi-native-fbank", "kaldi-decoder"} <= names


@pytest.mark.parametrize(
    ("settings", "level", "text", "todo"),
    [
        ("cmd=slurm.py", WRONG, "sbatch is not on PATH", "set cmd=run.py"),
        ('cmd="queue.py --mem 4G"', WRONG, "qsub is not on PATH", "set cmd=run.py"),
        ("cmd=mine.py", WRONG, "mine.py is neither on PATH nor in utils/", "set cmd=run.py"),
        ("nj=3", WRONG, "it sets no cmd", "set cmd"),
        ("cmd=(", WRONG, "local/cmd.sh: line ", "set cmd"),
        ("cmd='run.py --max-jobs-run 2' nj=8", OK, 'cmd="run.py --max-jobs-run 2", nj=8', ""),
    ],
)
def test_launchers(run, tmp_path, settings, level, text, todo):
    if (engine := text.split()[0]) in ("sbatch", "qsub") and shutil.which(engine):
        pytest.skip(f"this machine has {engine}")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "cmd.sh").write_text(settings + "\n")
    (tmp_path / "utils").mkdir()
    for name in ("slurm.py", "queue.py"):
        (tmp_path / "utils" / name).touch(mode=0o755)
    path = f"{tmp_path}/utils:{environment()['PATH']}"
    result = run("ngsgd-doctor", env={"PATH": path}, status=1 if level == WRONG else 0)
    about = findings(result.stdout, "launcher")
    assert about.startswith(level) and text in about and todo in about
    if level == WRONG:
        assert "1 things are wrong" in result.stderr


def test_a_cluster_that_is_there(run, tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "cmd.sh").write_text("cmd=slurm.py\n")
    for name in ("sbatch", "slurm.py"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    result = run("ngsgd-doctor", env={"PATH": f"{tmp_path}:{environment()['PATH']}"})
    assert "sbatch" in findings(result.stdout, "clusters") and "on PATH" in findings(result.stdout, "clusters")
    assert findings(result.stdout, "launcher").startswith(OK)


def test_places_that_cannot_be_written(run, tmp_path):
    result = run("ngsgd-doctor", env={"TMPDIR": str(tmp_path / "none")}, status=1)
    about = findings(result.stdout, "temporary files")
    assert about.startswith(WRONG) and "none cannot be written to" in about and "TMPDIR" in about


def test_locales(run):
    result = run("ngsgd-doctor", env={"LC_ALL": "en_US.UTF-8", "PYTHONUTF8": "1"})
    assert "sort and join follow en_US.UTF-8" in findings(result.stdout, "locale")
    assert findings(result.stdout, "locale").startswith(NOTE)


def test_threads_and_clashing_packages(monkeypatch):
    monkeypatch.setattr(doctor, "_blas_threads", lambda: 16)
    texts = [f.text for f in doctor._processor() if f.level == NOTE]
    assert texts == ["each program would compute with 16 threads, and steps run several at once"]
    known = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.1" if name == "pynini" else known(name))
    assert [(f.level, f.topic) for f in doctor._clashes()] == [(NOTE, "pynini")]


@pytest.mark.parametrize(
    ("missing", "driver", "level", "todo"),
    [
        ("", False, OK, ""),
        ("cupy is not installed (pip install 'ngsgd[gpu]')", False, OK, ""),
        ("cupy is not installed (pip install 'ngsgd[gpu]')", True, NOTE, "pip install 'ngsgd[gpu]'"),
        ("CUDA: driver too old", True, NOTE, "mend the driver"),
    ],
)
def test_gpus(monkeypatch, missing, driver, level, todo):
    monkeypatch.setattr(doctor, "gpu_missing", lambda: missing)
    monkeypatch.setattr(doctor, "gpu_names", lambda: ["NVIDIA X, 80 GiB, CUDA 12.4"])
    which = doctor.shutil.which
    monkeypatch.setattr(
        doctor.shutil, "which", lambda name: ("x" if driver else None) if name == "nvidia-smi" else which(name)
    )
    monkeypatch.setattr(doctor.os.path, "exists", lambda path: False)
    [finding] = doctor._gpu()
    assert finding.level == level
    assert todo in finding.todo
    assert (missing or "NVIDIA X") in finding.text
