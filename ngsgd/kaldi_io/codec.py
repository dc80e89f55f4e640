"""The arithmetic of Kaldi's compressed matrices, in Kaldi's precision: the same bytes out, the same floats back.

symbols: X (rows, cols) float32; m = min X; r = max X − m; Q (cols, 4) quantile codes; q (cols, 4) their values.

    u16(x) = ⌊65535 (x − m)/r + 0.499⌋, and its value m + (r · 1.52590218966964e-05) u16          (1)
    CM: Q = u16 of the sorted column at 0, n/4, 3(n/4), n − 1, made strictly increasing            (2)
        a byte counts 64 steps from q0 to q1, 128 from q1 to q2, 63 from q2 to q3                 (3)
    CM2: u16 of each element.   CM3: ⌊255 (x − m)/r + 0.499⌋ of each element.                     (4)

Checked against the examples that Kaldi cut and compressed again (tests/test_codec.py).
"""

import numpy as np

_UNIT16 = np.float32(1.52590218966964e-05)
_ORIGIN = np.array([0, 64, 192], np.float32)
_STEPS = np.array([64, 128, 63], np.float32)
_COUNT = np.arange(129, dtype=np.float32)


def encode(matrix: np.ndarray, kind: str, limits: tuple[float, float] | None = None) -> tuple[float, float, bytes]:
    """Minimum, range and payload of (rows >= 1, cols >= 1) float32 values, all finite; kind CM, CM2 or CM3.

    `limits`: this minimum and range instead of the matrix's own m and r (not for CM).
    """
    matrix = np.asarray(matrix, np.float32)
    if limits:
        low, extent = map(np.float32, limits)
    else:
        low, high = matrix.min(), matrix.max()
        if low == high:
            high = np.float32(low + (1.0 + abs(np.float64(low))))
        extent = high - low
    if kind == "CM":
        payload = _encode_columns(matrix, low, extent)
    elif kind == "CM2":
        payload = _to_code(matrix, low, extent, 65535).astype("<u2").tobytes()
    else:
        payload = _to_code(matrix, low, extent, 255).astype(np.uint8).tobytes()
    return float(low), float(extent), payload


def decode(kind: str, minimum: float, extent: float, rows: int, cols: int, payload: bytes) -> np.ndarray:
    """(rows, cols) float32."""
    low, span = np.float32(minimum), np.float32(extent)
    if kind == "CM":
        return _decode_columns(low, span, rows, cols, payload)
    top, dtype = (65535.0, "<u2") if kind == "CM2" else (255.0, "u1")
    unit = np.float32(np.float64(span) * (1.0 / top))
    codes = np.frombuffer(payload, dtype).reshape(rows, cols)
    return low + codes.astype(np.float32) * unit


def _to_code(values: np.ndarray, low: np.float32, extent: np.float32, top: int) -> np.ndarray:
    """Eq. (1) and (4): int32 codes 0..top."""
    fraction = np.clip((values - low) / extent, np.float32(0), np.float32(1))
    return ((fraction * np.float32(top)).astype(np.float64) + 0.499).astype(np.int32)


def _quantile_values(codes: np.ndarray, low: np.float32, extent: np.float32) -> np.ndarray:
    return low + extent * _UNIT16 * codes.astype(np.float32)


def _quantile_codes(matrix: np.ndarray, low: np.float32, extent: np.float32) -> np.ndarray:
    """Eq. (2): (cols, 4) uint16. Below five rows the sorted rows themselves, each missing one a step further."""
    rows, cols = matrix.shape
    if rows >= 5:
        at = [0, rows // 4, 3 * (rows // 4), rows - 1]
        ordered = np.partition(matrix, at, axis=0)[at]
    else:
        ordered = np.sort(matrix, axis=0)
    wanted = _to_code(ordered, low, extent, 65535)
    codes = np.empty((4, cols), np.int32)
    previous = np.full(cols, -1, np.int32)
    for i, limit in enumerate((65532, 65533, 65534, 65535)):
        code = np.maximum(wanted[i], previous + 1) if i < rows else previous + 1
        codes[i] = previous = np.minimum(code, limit)
    return codes.T.astype("<u2")


def _encode_columns(matrix: np.ndarray, low: np.float32, extent: np.float32) -> bytes:
    """Eq. (2) and (3): the columns' headers, then the bytes of each column."""
    codes = _quantile_codes(matrix, low, extent)
    q = _quantile_values(codes, low, extent)
    x = np.ascontiguousarray(matrix.T)
    piece = (x >= q[:, 1:2]).astype(np.int8) + (x >= q[:, 2:3])
    column = np.arange(len(q))[:, None]
    start, steps = q[column, piece], _STEPS[piece]
    fraction = (x - start) / (q[column, piece + 1] - start)
    step = np.clip((fraction * steps).astype(np.float64) + 0.5, 0, steps).astype(np.uint8)
    return codes.tobytes() + (step + _ORIGIN.astype(np.uint8)[piece]).tobytes()


def _decode_columns(low: np.float32, extent: np.float32, rows: int, cols: int, payload: bytes) -> np.ndarray:
    """Eq. (3) backwards: slopes in float32, the interpolation in float64, rounded once; by a table of all 256 bytes."""
    q = _quantile_values(np.frombuffer(payload, "<u2", count=4 * cols).reshape(cols, 4), low, extent)
    code = np.frombuffer(payload, np.uint8, offset=8 * cols).reshape(cols, rows)
    table = np.empty((cols, 256), np.float32)
    for i, (first, steps) in enumerate(zip((0, 64, 192), (64, 128, 63))):
        piece = (q[:, i + 1 : i + 2] - q[:, i : i + 1]) * _COUNT[: steps + 1]
        # The byte between two pieces belongs to the lower one.
        skip = int(i > 0)
        table[:, first + skip : first + steps + 1] = q[:, i : i + 1] + piece[:, skip:] * np.float64(1 / steps)
    return table.ravel()[np.add(code.T, 256 * np.arange(cols), order="C")]
