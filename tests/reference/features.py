"""Obvious float64 versions of the feature maths, for the tests to compare with."""

import numpy as np


def frames_of(samples, rate, length_ms=25.0, shift_ms=10.0):
    """(T, window) stretches of the recording that lie within it."""
    window, shift = int(rate * length_ms / 1000), int(rate * shift_ms / 1000)
    count = 1 + (len(samples) - window) // shift
    return np.array([samples[t * shift : t * shift + window] for t in range(count)], np.float64)


def power_spectra(frames, preemphasis=0.97):
    """(T, F) of the windows, padded to a power of two; without the offset, pre-emphasised, povey-windowed."""
    size = frames.shape[1]
    frames = frames - frames.mean(axis=1, keepdims=True)
    emphasised = frames.copy()
    for i in range(size - 1, 0, -1):
        emphasised[:, i] -= preemphasis * frames[:, i - 1]
    emphasised[:, 0] -= preemphasis * frames[:, 0]
    povey = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))) ** 0.85
    padded = 1 << (size - 1).bit_length()
    return np.abs(np.fft.rfft(emphasised * povey, padded)) ** 2


def mel(hertz):
    return 1127.0 * np.log(1 + hertz / 700.0)


def mel_banks(bins, rate, padded, low, high):
    """(bins, F): triangles of equal width in mel."""
    high = high if high > 0 else rate / 2 + high
    width = (mel(high) - mel(low)) / (bins + 1)
    banks = np.zeros((bins, padded // 2 + 1))
    for b in range(bins):
        left = mel(low) + b * width
        for i in range(padded // 2):
            x = (mel(i * rate / padded) - left) / width
            banks[b, i] = max(0.0, min(x, 2 - x))
    return banks


def fbank(samples, rate, bins, low=20.0, high=0.0):
    """(T, bins) log mel energies."""
    spectra = power_spectra(frames_of(samples, rate))
    banks = mel_banks(bins, rate, 2 * (spectra.shape[1] - 1), low, high)
    return np.log(np.maximum(spectra @ banks.T, np.finfo(np.float32).eps))


def mfcc(samples, rate, bins, ceps, low=20.0, high=0.0, lifter=22.0):
    """(T, ceps) with C0."""
    energies = fbank(samples, rate, bins, low, high)
    k, n = np.arange(ceps)[:, None], np.arange(bins)
    dct = np.sqrt(2 / bins) * np.cos(np.pi / bins * (n + 0.5) * k)
    dct[0] = np.sqrt(1 / bins)
    return energies @ dct.T * (1 + 0.5 * lifter * np.sin(np.pi * np.arange(ceps) / lifter))


def resample(samples, rate_in, rate_out, zeros=6):
    """The sum over the input, term by term, for each output sample."""
    cutoff = 0.99 * 0.5 * min(rate_in, rate_out)
    length = -(-len(samples) * rate_out // rate_in)
    output = np.zeros(length)
    for i in range(length):
        for n, x in enumerate(samples):
            t = n / rate_in - i / rate_out
            if abs(t) < zeros / (2 * cutoff):
                window = 0.5 * (1 + np.cos(2 * np.pi * cutoff / zeros * t))
                sinc = np.sin(2 * np.pi * cutoff * t) / (np.pi * t) if t else 2 * cutoff
                output[i] += x * window * sinc / rate_in
    return output


def deltas(features, window):
    """(T, D) regression slopes over ±window frames, the end frames repeated."""
    frames = len(features)
    norm = sum(j * j for j in range(-window, window + 1))
    out = np.zeros_like(features, dtype=np.float64)
    for t in range(frames):
        for j in range(-window, window + 1):
            out[t] += j / norm * features[min(max(t + j, 0), frames - 1)]
    return out


def sliding_cmvn(features, window, min_window, center, norm_vars):
    """Each frame by mean (and deviation) of its window: centred and pushed inside the utterance, or the frames before
    it, at the start of the utterance the first `min_window`."""
    frames = len(features)
    out = np.zeros_like(features, dtype=np.float64)
    for t in range(frames):
        if center:
            first = max(0, min(t - window // 2, frames - window))
            end = min(frames, first + window)
        else:
            first = max(0, t - window)
            end = min(frames, max(t + 1, min_window))
        part = features[first:end].astype(np.float64)
        out[t] = features[t] - part.mean(axis=0)
        if norm_vars:
            out[t] /= part.std(axis=0) if len(part) > 1 else 1
    return out


def online_cmvn(features, window, global_feats, global_frames, speaker_feats, speaker_frames, norm_vars):
    """Each frame by a weighted mean and deviation: those of the window weigh 1, the others share what is missing."""
    out = np.zeros_like(features, dtype=np.float64)
    for t in range(len(features)):
        parts = [features[max(0, t + 1 - window) : t + 1]]
        weights = [np.ones(len(parts[0]))]
        left = window - len(parts[0])
        for more, at_most in ((speaker_feats, min(speaker_frames, len(speaker_feats))), (global_feats, global_frames)):
            used = min(left, at_most)
            if len(more) and used > 0:
                parts.append(more)
                weights.append(np.full(len(more), used / len(more)))
                left -= used
        rows, weight = np.concatenate(parts).astype(np.float64), np.concatenate(weights)
        mean = weight @ rows / weight.sum()
        out[t] = features[t] - mean
        if norm_vars:
            out[t] /= np.sqrt(weight @ (rows - mean) ** 2 / weight.sum())
    return out
