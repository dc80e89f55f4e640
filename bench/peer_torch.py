"""The benchmark's peer: the same network in PyTorch, plain SGD, float32. Run by bench_nnet.py, with its own Python.

Usage: python peer_torch.py A|B MINIBATCH_SIZE THREADS wall|cpu

Prints `ready`, then for every line read (a number of minibatches) the seconds that training on so many took.
"""

import sys
import time

import torch

CONTEXT, FRAME_DIM, HIDDEN, GROUPS = 9, 40, 1000, 200
LAYERS = {"A": (2, 136), "B": (3, 3000)}


class Pnorm(torch.nn.Module):
    """2-norm of groups, then scaled to a mean square of one."""

    def forward(self, x):
        y = torch.linalg.vector_norm(x.view(len(x), GROUPS, HIDDEN // GROUPS), dim=2)
        return y * y.square().mean(dim=1, keepdim=True).clamp_min(2.0**-66).rsqrt()


def main(name: str, size: int, threads: int, clock: str) -> None:
    """Serve measurements."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    hidden, outputs = LAYERS[name]
    dim, layers = CONTEXT * FRAME_DIM, []
    transform = torch.linalg.qr(torch.randn(dim, dim))[0]
    width = dim
    for _ in range(hidden):
        layers += [torch.nn.Linear(width, HIDDEN), Pnorm()]
        width = GROUPS
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    data = [torch.randn(size, CONTEXT, FRAME_DIM) for _ in range(8)]
    labels = [torch.randint(outputs, (size,)) for _ in range(8)]

    def step(i: int) -> None:
        x = data[i % 8].view(size, dim) @ transform
        loss = torch.nn.functional.cross_entropy(model(x), labels[i % 8], reduction="sum")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()  # the objective is logged; ours computes it too

    for i in range(16):
        step(i)
    now = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
    print("ready", flush=True)
    for line in sys.stdin:
        start = now()
        for i in range(int(line)):
            step(i)
        print(now() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
