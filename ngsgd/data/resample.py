"""Changing the sampling rate of a recording, with the filter that Kaldi's features use (ResampleWaveform).

y_i = 1/r_in  Σ_n  x_n  h(n/r_in - i/r_out)
h(t) = ½ (1 + cos(2π f_c t / z)) · sin(2π f_c t) / (π t)   for |t| < z / (2 f_c), else 0;   h(0) = 2 f_c

x, y        input and output samples; zero outside the recording
r_in, r_out the two rates, Hz
f_c         cutoff, 0.99 × half the lower rate
z           zero crossings of the sinc on each side, 6
"""

from math import ceil, floor, gcd

import numpy as np

ZERO_CROSSINGS = 6
CUTOFF_OF_NYQUIST = 0.99


def resample(samples: np.ndarray, rate_in: int, rate_out: int) -> np.ndarray:
    """(N,) samples at `rate_in` Hz -> (ceil(N rate_out / rate_in),) float32 at `rate_out` Hz."""
    if rate_in == rate_out:
        return np.asarray(samples, np.float32)
    cutoff = CUTOFF_OF_NYQUIST * 0.5 * min(rate_in, rate_out)
    half_width = ZERO_CROSSINGS / (2 * cutoff)
    step_in, step_out = rate_in // gcd(rate_in, rate_out), rate_out // gcd(rate_in, rate_out)
    length = -(-len(samples) * step_out // step_in)
    margin = ceil(half_width * rate_in) + 1
    padded = np.pad(np.asarray(samples, np.float32), (margin, margin + step_in))
    output = np.empty(length, np.float32)
    for phase in range(min(step_out, length)):  # outputs `phase`, `phase + step_out`, ... share their weights
        time = phase / rate_out
        first, last = ceil((time - half_width) * rate_in), floor((time + half_width) * rate_in)
        weights = (_filter(np.arange(first, last + 1) / rate_in - time, cutoff) / rate_in).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(weights))[margin + first :: step_in]
        into = output[phase::step_out]
        into[:] = windows[: len(into)] @ weights
    return output


def _filter(t: np.ndarray, cutoff: float) -> np.ndarray:
    """h(t), t in seconds."""
    window = np.where(
        np.abs(t) < ZERO_CROSSINGS / (2 * cutoff), 0.5 * (1 + np.cos(2 * np.pi * cutoff / ZERO_CROSSINGS * t)), 0.0
    )
    return window * 2 * cutoff * np.sinc(2 * cutoff * t)  # numpy's sinc(x) is sin(πx)/(πx)
