"""What this machine has of what the toolkit needs, and what to do about the rest: the findings of `ngsgd-doctor`."""

import configparser
import ctypes
import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngsgd import __version__
from ngsgd.backend import gpu_missing, gpu_names

OK, NOTE, WRONG = "ok", "note", "WRONG"
CHECKOUT = Path(__file__).resolve().parents[1]
FREE_BYTES = 1 << 30
# What cannot live in one process with kaldifst: they link another OpenFst.
CLASHING = ("kaldi-hmm-gmm", "pynini")
IMPORT_NAMES = {"kaldi-native-fbank": "kaldi_native_fbank", "kaldi-decoder": "kaldi_decoder", "cupy-cuda12x": "cupy"}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
CLUSTER_COMMANDS = {"slurm.py": "sbatch", "queue.py": "qsub"}
BLAS_SYMBOLS = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")


@dataclass(frozen=True)
class Finding:
    """level: ok, note (works, perhaps not as expected) or WRONG (will fail); what to do, where there is something."""

    level: str
    topic: str
    text: str
    todo: str = ""


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which a user would mend them."""
    for check in (_python, _dependencies, _clashes, _programs, _processor, _memory, _gpu, _launcher, _disk, _locale):
        yield from check()


def _python() -> Iterator[Finding]:
    yield Finding(OK, "Python", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")
    where = "checkout" if (CHECKOUT / "steps").is_dir() else "installed package, programs only"
    todo = "" if where == "checkout" else "for steps and recipes, clone the repository"
    yield Finding(NOTE if todo else OK, "ngsgd", f"{__version__} at {CHECKOUT} ({where})", todo)


def requirements() -> list[str]:
    """Lines `name >= version` of what is needed: of setup.cfg in a checkout, else of the installed package."""
    setup = CHECKOUT / "setup.cfg"
    if setup.is_file():
        config = configparser.ConfigParser()
        config.read(setup, encoding="utf-8")
        return config["options"]["install_requires"].split("\n")
    try:
        return [line for line in importlib.metadata.requires("ngsgd") or [] if ";" not in line]
    except importlib.metadata.PackageNotFoundError:
        return []


def compare_requirements(lines: Iterable[str]) -> Iterator[Finding]:
    """A finding for each requirement: its version against the lower bound, and whether it can be imported."""
    for line in lines:
        match = re.match(r"\s*([\w.-]+?)\s*>=\s*([\d.]+)", line)
        if not match:
            continue
        name, bound = match[1], match[2]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(WRONG, name, "not installed", f"pip install '{name}>={bound}'")
            continue
        if _numbers(version) < _numbers(bound):
            yield Finding(WRONG, name, f"{version}, at least {bound} is needed", f"pip install '{name}>={bound}'")
            continue
        try:
            importlib.import_module(IMPORT_NAMES.get(name, name))
        except Exception as error:  # whatever a broken installation raises is what the user should read
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield Finding(
                WRONG, name, f"{version} cannot be imported: {reason}", f"pip install --force-reinstall {name}"
            )
        else:
            yield Finding(OK, name, f"{version} (at least {bound})")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _dependencies() -> Iterator[Finding]:
    lines = requirements()
    if not lines:
        yield Finding(NOTE, "dependencies", "no list of them: neither a checkout nor an installed package")
    yield from compare_requirements(lines)


def _clashes() -> Iterator[Finding]:
    for name in CLASHING:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        text = f"{version} is installed; imported beside kaldifst in one process it hangs. ngsgd never imports it"
        yield Finding(NOTE, name, text, "do not import it in programs of yours that use ngsgd")


def _programs() -> Iterator[Finding]:
    for name in ("bash", "gzip", "sha256sum", "flock"):
        if not shutil.which(name):
            yield Finding(WRONG, name, "not found on PATH", f"install {name}: steps and recipes call it")
    if shutil.which("make-mfcc"):
        yield Finding(OK, "programs", f"on PATH, in {os.path.dirname(shutil.which('make-mfcc'))}")
    else:
        yield Finding(NOTE, "programs", "not on PATH", f". {CHECKOUT}/utils/path.sh (recipes do it themselves)")


def _processor() -> Iterator[Finding]:
    import numpy as np

    from ngsgd.nnet.blas import library

    cores = len(os.sched_getaffinity(0))
    yield Finding(OK, "cores", f"{cores} usable of {os.cpu_count()}")
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    threads = _blas_threads()
    text = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    text += f", {threads} threads" if threads else ""
    named = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    text += f"; training multiplies with {library()}"
    yield Finding(OK, "BLAS", f"{text} ({', '.join(named) if named else 'no thread variable set'})")
    if threads and threads > 1:
        yield Finding(
            NOTE,
            "threads",
            f"each program would compute with {threads} threads, and steps run several at once",
            "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 (utils/path.sh does), the parallelism is in the jobs",
        )


def _blas_threads() -> int:
    """Threads that the OpenBLAS which numpy has loaded would use; 0: not known."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        libraries = {line.split(None, 5)[5].strip() for line in maps if "openblas" in line.lower()}
    for library in sorted(libraries):
        for symbol in BLAS_SYMBOLS:
            function = getattr(ctypes.CDLL(library), symbol, None)
            if function is not None:
                return function()
    return 0


def _memory() -> Iterator[Finding]:
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    total, free = (int(sizes[name]) / (1 << 20) for name in ("MemTotal", "MemAvailable"))
    low = free < 1
    yield Finding(
        NOTE if low else OK, "memory", f"{free:.1f} of {total:.1f} GiB free", "fewer jobs at once (nj)" if low else ""
    )


def _gpu() -> Iterator[Finding]:
    missing = gpu_missing()
    if not missing:
        yield Finding(OK, "GPU", "; ".join(gpu_names()))
    elif shutil.which("nvidia-smi") or os.path.exists("/dev/nvidiactl"):
        todo = "mend the driver, or train on the CPU (--device=cpu, the default)"
        if "not installed" in missing:
            todo = "pip install 'ngsgd[gpu]' to train on it"
        yield Finding(NOTE, "GPU", f"this machine seems to have one, but {missing}", todo)
    else:
        yield Finding(OK, "GPU", f"none, training runs on the CPU ({missing})")


def _launcher() -> Iterator[Finding]:
    found = [name for name in CLUSTER_COMMANDS.values() if shutil.which(name)]
    yield Finding(OK, "clusters", f"{', '.join(found)} on PATH" if found else "neither sbatch nor qsub on PATH")
    folders = (Path("local"), CHECKOUT / "local")
    settings = next((folder / "cmd.sh" for folder in folders if (folder / "cmd.sh").is_file()), None)
    if settings is None:
        yield Finding(NOTE, "launcher", "no local/cmd.sh here", "run from a recipe's directory or a checkout")
        return
    told = subprocess.run(
        ["bash", "-c", '. "$1" && printf "%s\\n%s\\n" "${cmd-}" "${nj-}"', "bash", str(settings)],
        capture_output=True,
        text=True,
    )
    cmd, nj, *_ = [*told.stdout.splitlines(), "", ""]
    if told.returncode or not cmd:
        reason = told.stderr.strip().splitlines()[-1] if told.stderr.strip() else "it sets no cmd"
        yield Finding(WRONG, "launcher", f"{settings}: {reason}", "set cmd, e.g. cmd=run.py")
        return
    name = cmd.split()[0]
    text = f'cmd="{cmd}", nj={nj or "not set"} ({settings})'
    if not (shutil.which(name) or (CHECKOUT / "utils" / name).is_file()):
        yield Finding(WRONG, "launcher", f"{text}: {name} is neither on PATH nor in utils/", "set cmd=run.py there")
    elif name in CLUSTER_COMMANDS and CLUSTER_COMMANDS[name] not in found:
        todo = "run on a machine that submits jobs, or set cmd=run.py there"
        yield Finding(WRONG, "launcher", f"{text}: {CLUSTER_COMMANDS[name]} is not on PATH", todo)
    else:
        yield Finding(OK, "launcher", text)


def _disk() -> Iterator[Finding]:
    for topic, folder in (("this directory", os.getcwd()), ("temporary files", _temporary_folder())):
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            todo = "export TMPDIR=a directory you may write to" if topic == "temporary files" else "work elsewhere"
            yield Finding(WRONG, topic, f"{folder} cannot be written to", todo)
            continue
        free = shutil.disk_usage(folder).free
        low = free < FREE_BYTES
        text = f"{folder}, writable, {free / (1 << 30):.1f} GiB free"
        yield Finding(NOTE if low else OK, topic, text, "make room: training examples are large" if low else "")


def _temporary_folder() -> str:
    """What TMPDIR says, right or wrong; else where Python puts temporary files."""
    return os.environ.get("TMPDIR") or tempfile.gettempdir()


def _locale() -> Iterator[Finding]:
    named = next(
        (f"{name}={os.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "not set"
    )
    text = f"{named}; file names are {sys.getfilesystemencoding()}"
    if sys.getfilesystemencoding() != "utf-8":
        yield Finding(WRONG, "locale", text, "export PYTHONUTF8=1: ids and paths are UTF-8")
        return
    sorting = os.environ.get("LC_ALL") or os.environ.get("LC_COLLATE") or os.environ.get("LANG") or "C"
    if sorting in ("C", "POSIX", "C.UTF-8"):
        yield Finding(OK, "locale", text)
    else:
        todo = "export LC_ALL=C before you sort files of a data directory yourself (utils/path.sh does)"
        yield Finding(NOTE, "locale", f"{text}; sort and join follow {sorting}", todo)


def report(findings: Iterable[Finding], show: Callable[[str], None]) -> int:
    """Show each finding as it comes; the number of those that are WRONG."""
    wrong = 0
    for finding in findings:
        show(f"{finding.level:5}  {finding.topic:18}  {finding.text}")
        if finding.todo:
            show(f"{'':5}  {'':18}  -> {finding.todo}")
        wrong += finding.level == WRONG
    return wrong
