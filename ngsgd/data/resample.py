"""Changing the sampling rate of a recording, with the filter that Kaldi's features use (ResampleWaveform).

y_i = 1/r_in  Σ_n  x_n  h(n/r_in - i/r_out)
h(t) = ½ (1 + cos(2π f_c t / z)) · sin(2π f_c t) / (π t)   for |t| < z / (2 f_c), else 0;   h(0) = 2 f_c

x, y        input and output samples; zero outside the recording
r_in, r_out the two rates, Hz
f_c         cutoff, 0.99 × half the lower rate
z           zero crossings of the sinc on each side, 6

The terms of each sum are added in the order of n, one by one, so that y_i has the same bits in whatever pieces x comes.
"""

from math import ceil, floor, gcd

import numpy as np

ZERO_CROSSINGS = 6
CUTOFF_OF_NYQUIST = 0.99
PIECE = 1 << 15  # samples worked on at once: what fits into the cache


def resample(samples: np.ndarray, rate_in: int, rate_out: int) -> np.ndarray:
    """(N,) samples at `rate_in` Hz -> (ceil(N rate_out / rate_in),) float32 at `rate_out` Hz."""
    if rate_in == rate_out:
        return np.asarray(samples, np.float32)
    resampler = Resampler(rate_in, rate_out)
    pieces = [resampler.accept(samples[at : at + PIECE]) for at in range(0, len(samples), PIECE)]
    return np.concatenate([*pieces, resampler.finish()])


class Resampler:
    """The same for a recording that comes in chunks: `accept` each, then `finish`.

    An output sample is given as soon as all the input that its sum runs over is there.
    """

    def __init__(self, rate_in: int, rate_out: int):
        divisor = gcd(rate_in, rate_out)
        self._step_in, self._step_out = rate_in // divisor, rate_out // divisor
        # The sum of y_i, i = b step_out + p, starts at x_n, n = b step_in + first[p], with the weights of phase p.
        cutoff = CUTOFF_OF_NYQUIST * 0.5 * min(rate_in, rate_out)
        half_width = ZERO_CROSSINGS / (2 * cutoff)
        times = np.arange(self._step_out) / rate_out
        self._first = np.array([ceil((time - half_width) * rate_in) for time in times])
        self._terms = max(floor((t + half_width) * rate_in) + 1 - n for t, n in zip(times, self._first))
        n = self._first[:, None] + np.arange(self._terms)
        weights = _filter(n / rate_in - times[:, None], cutoff) / rate_in
        self._weights = np.ascontiguousarray(weights.T, np.float32)  # (terms, phases)
        self._received = self._given = 0  # samples so far
        self._held_from = int(self._first[0])  # n of the first sample that is held
        self._held = np.zeros(-self._held_from, np.float32)

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """(M,) float32 samples that the next (N,) complete."""
        self._received += len(samples)
        return self._give(samples, self._received * self._step_out // self._step_in + 1)

    def finish(self) -> np.ndarray:
        """The last samples, after the end of the recording."""
        length = -(-self._received * self._step_out // self._step_in)
        last = self._start_of(np.array([max(length - 1, 0)]))[0] + self._terms
        missing = max(0, last - self._held_from - len(self._held))
        return self._give(np.zeros(missing, np.float32), length)

    def _start_of(self, i: np.ndarray) -> np.ndarray:
        """n at which the sum of output i starts."""
        block, phase = np.divmod(i, self._step_out)
        return block * self._step_in + self._first[phase]

    def _give(self, samples: np.ndarray, end: int) -> np.ndarray:
        """Outputs up to `end` whose input has come, with `samples` following those that are held."""
        held = np.concatenate([self._held, np.asarray(samples, np.float32)])
        i = np.arange(self._given, max(end, self._given))
        start = self._start_of(i) - self._held_from
        ready = int(np.searchsorted(start, len(held) - self._terms, side="right"))
        i, start = i[:ready], start[:ready]
        phase = i % self._step_out
        output = np.zeros(ready, np.float32)
        for weights in self._weights:
            output += weights[phase] * held[start]
            start += 1
        self._given += ready
        keep = int(self._start_of(np.array([self._given]))[0]) - self._held_from
        self._held, self._held_from = held[keep:], self._held_from + keep
        return output


def _filter(t: np.ndarray, cutoff: float) -> np.ndarray:
    """h(t), t in seconds."""
    window = np.where(
        np.abs(t) < ZERO_CROSSINGS / (2 * cutoff), 0.5 * (1 + np.cos(2 * np.pi * cutoff / ZERO_CROSSINGS * t)), 0.0
    )
    return window * 2 * cutoff * np.sinc(2 * cutoff * t)  # numpy's sinc(x) is sin(πx)/(πx)
