#!/usr/bin/env python3
"""Speed of training steps: plain SGD and natural gradient here, plain SGD in PyTorch, and the sgemm peak, side by side.

Usage: bench_nnet.py [options]
e.g.: OMP_NUM_THREADS=1 bench/bench_nnet.py --torch-python=/path/to/venv/bin/python --stats-out=speed.json

Every figure is the median of --rounds rounds; in each round all contenders take short turns, so that a busy machine is
busy for all of them. --torch-python is a Python with torch installed; without it there is no peer to compare with.
NGSGD_BLAS chooses our library (ngsgd/nnet/blas.py).
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ngsgd import cli
from ngsgd.options import opt

HERE = Path(__file__).resolve().parent
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
TURNS = 4  # of every contender in a round
WARM_UP = 16  # minibatches: the first ten always update the Fisher estimates


@dataclasses.dataclass
class BenchOptions:
    """What to measure."""

    networks: str = opt("A,B", "networks, with commas between")
    sizes: str = opt("128,512", "minibatch sizes, with commas between")
    threads: str = opt("1", "numbers of threads, with commas between")
    rounds: int = opt(5, "rounds, whose median is reported")
    frames: int = opt(8192, "frames of one measurement")
    clock: str = opt(
        "wall", "wall; or cpu, to compare one-threaded runs on a machine that does other things too", ("wall", "cpu")
    )
    torch_python: str = opt("", "a Python with torch")
    stats_out: str = opt("", "also write the figures to this file, as JSON")


class Contender:
    """A process that trains on as many minibatches as it is asked to and says how long it took."""

    def __init__(self, command: list[str], threads: int):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = {**os.environ, **{name: str(threads) for name in names}}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.process.stdout.readline().strip() != "ready":
            raise cli.DataError(f"{' '.join(command)}: did not start")

    def seconds(self, count: int) -> float:
        """Time of `count` minibatches."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise cli.DataError(f"{' '.join(self.process.args)}: ended before it was asked to")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def serve(kind: str, name: str, size: int, clock: str) -> None:
    """The process behind our contenders and the sgemm peak."""
    import numpy as np
    from networks import minibatches, network, num_parameters

    if kind == "sgemm":
        a = np.random.default_rng(1).standard_normal((2000, 2000), np.float32)
        step = lambda i: a @ a  # noqa: E731
    else:
        from ngsgd.nnet.train import Trainer

        with tempfile.TemporaryDirectory() as folder:
            nnet = network(name, folder, kind == "natural gradient")
        data, trainer = minibatches(name, size, 8), Trainer(nnet, size, np.random.default_rng(1))
        assert num_parameters(nnet) > 0
        step = lambda i: trainer.step(data[i % 8])  # noqa: E731
    for i in range(WARM_UP if kind != "sgemm" else 1):
        step(i)
    now = CLOCKS[clock]
    print("ready", flush=True)
    for line in sys.stdin:
        start = now()
        for i in range(int(line)):
            step(i)
        print(now() - start, flush=True)


def measure(name: str, size: int, threads: int, options: BenchOptions) -> dict:
    """Figures for one network, minibatch size and number of threads."""
    mine = [sys.executable, __file__, "--serve"]
    commands = {k: [*mine, k, name, str(size), options.clock] for k in ("natural gradient", "plain", "sgemm")}
    if options.torch_python:
        peer = [options.torch_python, str(HERE / "peer_torch.py")]
        commands["torch"] = [*peer, name, str(size), str(threads), options.clock]
    contenders = {kind: Contender(command, threads) for kind, command in commands.items()}
    count = max(1, options.frames // (TURNS * size))
    rates: dict[str, list[float]] = {kind: [] for kind in contenders}
    for _ in range(options.rounds):
        seconds = dict.fromkeys(contenders, 0.0)
        for _ in range(TURNS):
            for kind, contender in contenders.items():
                seconds[kind] += contender.seconds(1 if kind == "sgemm" else count)
        for kind, rate in rates.items():
            rate.append(TURNS * (2.0 * 2000**3 if kind == "sgemm" else count * size) / seconds[kind])
    for contender in contenders.values():
        contender.close()
    return {kind: statistics.median(values) for kind, values in rates.items()}


def useful_flops(name: str) -> float:
    """6 × trained parameters: the arithmetic of a frame that training cannot do without."""
    from networks import network, num_parameters

    with tempfile.TemporaryDirectory() as folder:
        return 6.0 * num_parameters(network(name, folder))


@cli.program(__doc__)
@cli.options_from(BenchOptions)
def main(bench):
    sys.path.insert(0, str(HERE))
    from ngsgd.nnet import blas

    rows = []
    print(f"products: {blas.library()}")
    print("net  size thr  plain  NG-SGD  torch  frames/s   NG/torch  NG extra  useful/peak (GFLOP/s)")
    for name in bench.networks.split(","):
        flops = useful_flops(name)
        for size in map(int, bench.sizes.split(",")):
            for threads in map(int, bench.threads.split(",")):
                found = measure(name, size, threads, bench)
                ng, plain, peer = found["natural gradient"], found["plain"], found.get("torch", float("nan"))
                row = {
                    "network": name,
                    "minibatch_size": size,
                    "threads": threads,
                    "library": blas.library(),
                    "frames_per_second": {"plain": plain, "natural_gradient": ng, "torch_plain": peer},
                    "natural_gradient_over_torch": ng / peer,
                    "natural_gradient_extra_time": plain / ng - 1.0,
                    "useful_gflops": ng * flops / 1e9,
                    "sgemm_gflops": found["sgemm"] / 1e9,
                }
                rows.append(row)
                useful, peak = row["useful_gflops"], row["sgemm_gflops"]
                extra = 100 * row["natural_gradient_extra_time"]
                rates = f"{name:3} {size:5} {threads:3} {plain:7.0f} {ng:7.0f} {peer:7.0f}"
                print(
                    f"{rates} {ng / peer:18.2f} {extra:8.0f}% {useful / peak:8.2f} ({useful:.0f}/{peak:.0f})",
                    flush=True,
                )
    if bench.stats_out:
        Path(bench.stats_out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main()
