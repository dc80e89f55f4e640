#!/usr/bin/env python3
"""A model of the time of an iteration, from shares that are measured here, and the speed-up by jobs that it predicts.

Usage: bench_scaling.py [options] [RUN]
e.g.: OMP_NUM_THREADS=1 bench/bench_scaling.py --folder=/dev/shm exp/nnet

    N       jobs, each on a core of its own         P       parameters of the network, of 4 bytes each
    K       frames of a job in an iteration         v       frames/s of one job
    W       bytes/s that the file system gives to all together
    L       launching, s                            s       starting a job and its first minibatch, s
    a, b    averaging: s for each model, s to start c       standard deviation of the jobs' times over their mean
    m_N     expected largest of N standard normal numbers
    e       bytes of examples for a frame

    T_N = L + s + 4 N P / W + max(K (1 + c m_N) / v, N K e / W) + 4 N P / W        reading, training, writing
        + L + b + N (a + 4 P / W) + 4 P / W                                       one model of theirs

    speed-up: N T_1 / T_N; averaging: the second line's share of T_N

v, s, a and b are measured in processor time, which other work on the machine disturbs little, and which is the elapsed
time on a machine that has nothing else to do; files are in --folder, best in memory, since W stands for the disk. L and
c are those of RUN, a training directory, by progress.tsv and stats/; without it those given.
"""

import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ngsgd import cli
from ngsgd.options import opt

HERE = Path(__file__).resolve().parent
JOBS = (1, 2, 4, 8, 16, 32, 64)
NETWORKS = "1M", "10M", "50M"


@dataclasses.dataclass
class ScalingOptions:
    """What to measure and what to assume."""

    folder: str = opt("/dev/shm", "folder for models")
    frames: int = opt(400_000, "K: frames of a job, the paper's", at_least=1)
    minibatch_size: int = opt(128, "frames of a minibatch", at_least=1)
    bandwidths: str = opt("100,1000", "W in MB/s, commas between")
    bytes_per_frame: float = opt(85.0, "e: compressed examples of 8 frames with 13 MFCC have 85", above=0)
    launch_s: float = opt(1.0, "L, without RUN", at_least=0)
    spread: float = opt(0.02, "c, without RUN", at_least=0)


@dataclasses.dataclass
class Shares:
    """Measured figures of one network."""

    parameters: int
    frames_per_s: float
    start_s: float
    average_s: float  # for each model
    average_start_s: float


def expected_largest(n: int) -> float:
    """m_N, by integrating x d Phi(x)^N."""
    import numpy as np
    from scipy.special import ndtr

    x = np.linspace(-8, 8, 4001)
    return float(np.sum((x[1:] + x[:-1]) / 2 * np.diff(ndtr(x) ** n)))


def iteration(n: int, shares: Shares, options: ScalingOptions, bandwidth: float) -> tuple[float, float]:
    """T_N and the part of it for averaging, seconds."""
    model = 4 * shares.parameters / bandwidth
    training = options.frames * (1 + options.spread * expected_largest(n)) / shares.frames_per_s
    reading = n * options.frames * options.bytes_per_frame / bandwidth
    jobs = options.launch_s + shares.start_s + 2 * n * model + max(training, reading)
    averaging = options.launch_s + shares.average_start_s + n * (shares.average_s + model) + model
    return jobs + averaging, averaging


def of_run(directory: str) -> tuple[float, float]:
    """L and c of a training: medians over its iterations of several jobs."""
    from statistics import mean, median, stdev

    from ngsgd.errors import DataError
    from ngsgd.report.progress import Progress

    records = Progress(f"{directory}/progress.tsv").records.values()
    launch = [r.jobs_s - r.slowest_job_s for r in records if r.jobs_s and r.slowest_job_s]
    seconds: dict[str, list[float]] = {}
    for path in Path(directory, "stats").glob("job.*.json"):
        seconds.setdefault(path.name.split(".")[1], []).append(json.loads(path.read_text())["seconds"])
    spreads = [stdev(s) / mean(s) for s in seconds.values() if len(s) > 1]
    if not launch or not spreads:
        raise DataError(f"{directory}: no iteration of several jobs with times in progress.tsv and stats/")
    return median(launch), median(spreads)


def processor_seconds(command: list[str]) -> float:
    """Of a program, from its start to its end."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    subprocess.run([sys.executable, *command], env=environment, check=True, stderr=subprocess.DEVNULL)
    return used() - before


def measure(name: str, folder: str, size: int) -> Shares:
    """The shares of one of the networks."""
    import numpy as np
    from bench_program import write_model_and_examples
    from networks import minibatches, network

    from ngsgd.nnet.train import Trainer

    write_model_and_examples(name, size, folder)
    nnet = network(name, folder)
    parameters = nnet.num_parameters
    program = [str(HERE.parent / "bin" / "nnet-train-ngsgd"), f"--minibatch-size={size}"]
    start = min(
        processor_seconds([*program, f"{folder}/0.mdl", f"ark:{folder}/egs.ark", f"{folder}/1.mdl"]) for _ in range(2)
    )
    trainer, steps = Trainer(nnet, size, np.random.default_rng(0)), 12
    data = minibatches(name, size, 4 + steps)
    for minibatch in data[:4]:
        trainer.step(minibatch)
    begin = time.process_time()
    for minibatch in data[4:]:
        trainer.step(minibatch)
    frames_per_s = steps * size / (time.process_time() - begin)
    average = [str(HERE.parent / "bin" / "nnet-average")]
    few, many = (
        min(processor_seconds([*average, *[f"{folder}/0.mdl"] * n, f"{folder}/1.mdl"]) for _ in range(2))
        for n in (2, 10)
    )
    each = (many - few) / 8
    return Shares(parameters, frames_per_s, start, each, few - 2 * each)


@cli.program(__doc__)
@cli.options_from(ScalingOptions)
@cli.argument("run", required=False)
def main(scaling, run):
    sys.path.insert(0, str(HERE))
    if run:
        scaling.launch_s, scaling.spread = of_run(run)
    print(f"L = {scaling.launch_s:.2f} s, c = {scaling.spread:.3f}, K = {scaling.frames}\n")
    found = []
    for name in NETWORKS:
        with tempfile.TemporaryDirectory(dir=scaling.folder) as folder:
            found.append(measure(name, folder, scaling.minibatch_size))
    print("| parameters | frames/s of a job | starting a job, s | averaging, s to start | s for each model |")
    print("|---|---|---|---|---|")
    for s in found:
        print(f"| {s.parameters / 1e6:.1f} M | {s.frames_per_s:,.0f} | {s.start_s:.2f} | ", end="")
        print(f"{s.average_start_s:.2f} | {s.average_s:.3f} |")
    print("\n| parameters | MB/s | " + " | ".join(f"{n} jobs" for n in JOBS) + " |")
    print("|---|---|" + "---|" * len(JOBS))
    for s in found:
        for bandwidth in re.split(r"[ ,]+", scaling.bandwidths.strip()):
            cells, (alone, _) = [], iteration(1, s, scaling, 1e6 * float(bandwidth))
            for n in JOBS:
                total, averaging = iteration(n, s, scaling, 1e6 * float(bandwidth))
                cells.append(f"{n * alone / total:.1f} ({100 * averaging / total:.1f} %)")
            print(f"| {s.parameters / 1e6:.1f} M | {bandwidth} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
