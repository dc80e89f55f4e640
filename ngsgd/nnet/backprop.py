"""Forward and backward through the components, in buffers that are made once.

A minibatch is N chunks of F frames each: in training F = L + 1 + R and one frame of output a chunk, in decoding N = 1
and F the length of the utterance with its context. `frame_times` finds which frames every component has to compute, so
that a network with splices inside computes each of them once.

The column of ones that affine components want (see `components.base`) stands in the last column of their input's
buffer from the beginning: the component before writes beside it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Chunks, Component, StatisticsMixin, UpdatableComponent
from ngsgd.nnet.components.softmax import SoftmaxComponent
from ngsgd.nnet.model import Nnet


class GradientStep(NamedTuple):
    """What an updatable component's gradient is made of. By now nothing else needs its parameters: change them."""

    index: int  # of the component in the network
    component: UpdatableComponent
    x: Any  # (N, D_in + 1) with ones where component.takes_ones, else (N, D_in)
    dy: Any  # (N, D_out)

    @property
    def factors(self) -> list:
        """The gradient in factors (`components.base.Factors`)."""
        return self.component.gradient_factors(self.x, self.dy)


def frame_times(nnet: Nnet, num_frames: int) -> list[np.ndarray]:
    """For the input of every component, and the output of the last: the frames needed of a chunk, as sorted times.

    The times count from 0 at the first of the `num_frames` frames at the network's input. Up to the first component
    with a context all frames are there, needed or not: that is how the input comes.
    """
    left, right = nnet.left_context, nnet.right_context
    if num_frames <= left + right:
        raise DataError(f"{nnet.where}: {num_frames} frames, but the network needs {left + 1 + right} for one output")
    times = [np.arange(left, num_frames - right)]
    for component in reversed(nnet.components):
        times.insert(0, np.unique(times[0][:, None] + np.asarray(component.context)))
    for i, component in enumerate(nnet):
        times[i] = np.arange(num_frames)
        if len(component.context) > 1:
            break
    else:
        times[-1] = np.arange(num_frames)
    return times


class Workspace:
    """Buffers for up to `max_chunks` chunks of `num_frames` frames through `nnet`, which it does not copy.

    Other shapes are taken too: the buffers grow where they have to.

    `forward(input)` computes the output; afterwards `backward(dy)` or `backward_labels(...)` yields the gradients from
    the last updatable component to the first. What is returned lives in the buffers, until the next `forward`.
    """

    def __init__(self, nnet: Nnet, max_chunks: int, num_frames: int, xp: Any = np, dtype: Any = np.float32):
        self.nnet, self.max_chunks, self.xp, self.dtype = nnet, max_chunks, xp, dtype
        self._times = {num_frames: frame_times(nnet, num_frames)}
        self.times = self._times[num_frames]
        self.first_updatable = next((i for i, c in enumerate(nnet) if isinstance(c, UpdatableComponent)), len(nnet))
        self._buffers: list[Any] = [None] * (len(nnet) + 1)  # of component i's input
        self._derivatives: list[Any] = [None, None]  # flat; a component reads its dy in one and writes dx to the other
        self._turn = 0
        self._values: list[Any] = [None] * (len(nnet) + 1)  # of the current minibatch, with ones where wanted
        self._count = 0

    @property
    def output(self) -> Any:
        """(N · frames, P): output of the last `forward`."""
        return self._values[-1]

    def _takes_ones(self, index: int) -> bool:
        return index < len(self.nnet) and self.nnet[index].takes_ones

    def _dim(self, index: int) -> int:
        return self.nnet[index].input_dim if index < len(self.nnet) else self.nnet.output_dim

    def _rows(self, index: int) -> int:
        return self._count * len(self.times[index])

    def _buffer(self, index: int) -> Any:
        """(N · frames, D) for the input of component `index`, or (…, D + 1) with ones."""
        ones, rows = self._takes_ones(index), self._rows(index)
        if self._buffers[index] is None or len(self._buffers[index]) < rows:
            size = (max(rows, self.max_chunks * len(self.times[index])), self._dim(index) + ones)
            self._buffers[index] = self.xp.empty(size, self.dtype)
            if ones:
                self._buffers[index][:, -1] = 1
        return self._buffers[index][:rows]

    def _derivative(self, index: int) -> Any:
        """(N · frames, D) for the derivative at the input of component `index`, not in the memory of the one before.

        All layers share this memory: what was used a moment ago is still in the cache.
        """
        self._turn = 1 - self._turn
        shape = (self._rows(index), self._dim(index))
        flat = self._derivatives[self._turn]
        if flat is None or len(flat) < shape[0] * shape[1]:
            flat = self._derivatives[self._turn] = self.xp.empty(shape[0] * shape[1], self.dtype)
        return flat[: shape[0] * shape[1]].reshape(shape)

    def _chunks(self, index: int) -> Chunks:
        return Chunks(self._count, self.times[index], self.times[index + 1])

    def _without_ones(self, index: int) -> Any:
        value = self._values[index]
        return value[:, :-1] if self._takes_ones(index) else value

    def forward(self, data: Any) -> Any:
        """(N · frames, P) from data (N, F, D)."""
        self._count, frames, dim = data.shape
        if frames not in self._times:
            self._times[frames] = frame_times(self.nnet, frames)
        self.times = self._times[frames]
        if dim != self.nnet.input_dim:
            raise DataError(f"{self.nnet.where}: an input of dimension {dim}, wanted is {self.nnet.input_dim}")
        value = data.reshape(self._count * frames, dim)
        if self._takes_ones(0):
            buffer = self._buffer(0)
            buffer[:, :-1] = value
            value = buffer
        self._values[0] = value
        for i, component in enumerate(self.nnet):
            value = self._step(i, component, value)
            self._values[i + 1] = value
        return value

    def _step(self, index: int, component: Component, value: Any) -> Any:
        if self._takes_ones(index + 1):
            buffer = self._buffer(index + 1)
            component.forward(value, buffer[:, :-1], self._chunks(index))
            return buffer
        if len(component.context) > 1:
            # A splice may be a mere change of shape; it gets a buffer only when it has to copy.
            chunks = self._chunks(index)
            out = None if component.free_of_copies(chunks) else self._buffer(index + 1)
            return component.forward(value, out, chunks)
        in_place = component.forward_in_place and index > 0 and self._is_free(index)
        return component.forward(value, value if in_place else self._buffer(index + 1), self._chunks(index))

    def _is_free(self, index: int) -> bool:
        """Whether nothing but component `index` wants its input, which is in a buffer of its own."""
        before = self.nnet[index - 1]
        return len(before.context) == 1 and not before.needs_y and not self._takes_ones(index)

    def accumulate_statistics(self) -> None:
        """Add this minibatch to the statistics of the components behind the first updatable one."""
        for i, component in enumerate(self.nnet):
            if i > self.first_updatable and isinstance(component, StatisticsMixin):
                component.accumulate(self._values[i], self._without_ones(i + 1))

    def backward(self, dy: Any) -> Iterator[GradientStep]:
        """Yield the gradients, last component first; dy (N · frames, P) is the derivative at the output.

        When a step is yielded, the derivative with respect to the component's input has been computed already, so
        that its parameters may be changed before asking for the next: all derivatives are at the old parameters.
        """
        yield from self._backward_from(len(self.nnet), dy)

    def backward_labels(self, row: Any, pdf: Any, weight: Any) -> Iterator[GradientStep]:
        """As `backward`, for the objective Σ_k weight_k log output[row_k, pdf_k]; all three (K,).

        A softmax at the end is computed in place: the output of `forward` is no more, then.
        """
        last = len(self.nnet) - 1
        if isinstance(self.nnet[last], SoftmaxComponent):
            output, self._values[-1] = self.output, None
            dx = self.nnet[last].backward_labels(output, row, pdf, weight, output)
            yield from self._backward_from(last, dx)
        else:
            dy = self.xp.zeros_like(self.output)
            self.xp.add.at(dy, (row, pdf), (weight / self.output[row, pdf]).astype(dy.dtype, copy=False))
            yield from self._backward_from(len(self.nnet), dy)

    def _backward_from(self, index: int, dy: Any) -> Iterator[GradientStep]:
        for i in range(index - 1, self.first_updatable - 1, -1):
            component = self.nnet[i]
            dx = None
            if i > self.first_updatable:
                x = self._values[i] if component.needs_x else None
                y = self._without_ones(i + 1) if component.needs_y else None
                out = dy if component.in_place and i < len(self.nnet) - 1 else self._derivative(i)
                dx = component.backward(x, y, dy, out, self._chunks(i))
            if isinstance(component, UpdatableComponent):
                yield GradientStep(i, component, self._values[i], dy)
            dy = dx
