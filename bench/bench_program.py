#!/usr/bin/env python3
"""Speed of nnet-train-ngsgd as a process, from start to end, on network A or B and an archive of random examples.

Usage: bench_program.py [options]
e.g.: OMP_NUM_THREADS=1 bench/bench_program.py --network=A --minibatch-size=128

Kaldi's nnet-train-simple took 4.4 s for 30,896 frames of network A with one thread (7,000 frames/s, on a core whose
sgemm peak is 95 GFLOP/s), reading and writing included.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ngsgd import cli
from ngsgd.options import opt

HERE = Path(__file__).resolve().parent
KALDI = {"A": 30896 / 4.4}


@dataclasses.dataclass
class ProgramOptions:
    """What to measure."""

    network: str = opt("A", "network", ("A", "B"))
    frames: int = opt(409600, "frames of the archive: as many as the paper gives a job; starting takes under 5 %")
    minibatch_size: int = opt(128, "frames of a minibatch")
    rounds: int = opt(5, "rounds, whose median is reported")


def write_model_and_examples(name: str, frames: int, folder: str) -> None:
    """`0.mdl` and `egs.ark` in the folder."""
    import numpy as np
    from networks import CONTEXT, FRAME_DIM, LAYERS, network

    from ngsgd.egs.example import NnetExample
    from ngsgd.hmm.topology import NO_PDF, HmmState, Topology
    from ngsgd.hmm.transitions import TransitionModel
    from ngsgd.kaldi_io.compressed import CompressedMatrix
    from ngsgd.kaldi_io.tables import Writer
    from ngsgd.nnet.model import AmNnet, write_model

    pdfs = LAYERS[name][1]
    state, end = HmmState(0, 0, ((0, 0.5), (1, 0.5))), HmmState(NO_PDF, NO_PDF, ())
    topology = Topology([[state, end]], dict.fromkeys(range(1, pdfs + 1), 0))
    tuples = np.array([(pdf + 1, 0, pdf, pdf) for pdf in range(pdfs)])
    write_model(AmNnet(TransitionModel(topology, tuples), network(name, folder)), f"{folder}/0.mdl")
    rng, per_example = np.random.default_rng(3), 8
    with Writer(f"ark:{folder}/egs.ark", "nnet_example") as w:
        for i in range(frames // per_example):
            data = rng.standard_normal((per_example + 2 * CONTEXT, FRAME_DIM)).astype(np.float32)
            labels = [[(int(pdf), 1.0)] for pdf in rng.integers(pdfs, size=per_example)]
            w.write(f"e{i}", NnetExample(labels, CompressedMatrix.from_dense(data), CONTEXT))


@cli.program(__doc__)
@cli.options_from(ProgramOptions)
def main(program):
    import statistics

    sys.path.insert(0, str(HERE))
    with tempfile.TemporaryDirectory() as folder:
        write_model_and_examples(program.network, program.frames, folder)
        train = str(HERE.parent / "bin" / "nnet-train-ngsgd")
        size = f"--minibatch-size={program.minibatch_size}"
        command = [sys.executable, train, size, f"{folder}/0.mdl", f"ark:{folder}/egs.ark", f"{folder}/1.mdl"]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        wall, cpu = [], []
        for _ in range(program.rounds + 1):  # the first one warms the caches of kernels and files
            before, start = os.times(), time.perf_counter()
            subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
            wall.append(time.perf_counter() - start)
            after = os.times()
            cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
    for name, seconds in (("wall", wall), ("cpu", cpu)):
        rate = program.frames / statistics.median(seconds[1:])
        text = f"network {program.network}, minibatch {program.minibatch_size}: {rate:.0f} frames/s by {name} time"
        if program.network in KALDI:
            text += f", {rate / KALDI[program.network]:.2f} x Kaldi's {KALDI[program.network]:.0f} (another machine)"
        print(text)


if __name__ == "__main__":
    main()
