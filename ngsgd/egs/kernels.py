"""Numba kernels of the fast examples reader: find the pieces of an archive, decode rows of compressed matrices.

Imported only where it is used (numba takes half a second to import); `archive.py` is the plain face of it.

An entry of an archive of Kaldi's nnet2 examples, all integers little-endian, `i4` = byte 4 + int32:

    KEY ' ' \\0 B <NnetExample>_ ( <Lab1>_ i4:T, T x int32                          one pdf a frame, weight 1
                                | <Lab2>_ i4:T, T x (i4:K, K x (i4:pdf, \\4 float)) any posteriors
                                | <Labels>_ i4:K, K x (...) )                      one frame, the oldest form
    <InputFrames>_ MATRIX <LeftContext>_ i4 <SpkInfo>_ FV_ i4:E, E x float </NnetExample>_

MATRIX is `CM_` (a byte an element, four uint16 quantiles a column, column-major), `CM2_` (uint16, row-major), `CM3_`
(uint8, row-major), each after float min, float range, int32 rows, int32 columns, or `FM_`/`DM_` i4:rows i4:columns.
"""

import numba
import numpy as np

# Columns of the index that `scan` makes: byte offsets and sizes, one row an example.
START, KEY_END, END, FRAMES, LABEL_KIND, LABELS, FORMAT, ROWS, COLS, DATA, LEFT, SPK_DIM, SPK = range(13)
NUM_FIELDS = 13
LAB1, LAB2, LABELS_OLD = 1, 2, 3
CM, CM2, CM3, FM, DM = 1, 2, 3, 4, 5
# Error codes of `scan`; 0 is none. The texts are in archive.ERRORS.
(
    TRUNCATED,
    NO_KEY,
    NO_BINARY,
    NO_EXAMPLE,
    NO_LABELS,
    NO_INPUT,
    BAD_MATRIX,
    NO_LEFT,
    NO_SPK,
    NO_END,
    BAD_INT,
    BAD_SIZE,
) = range(1, 13)

_EXAMPLE = np.frombuffer(b"\0B<NnetExample> ", np.uint8)
_LAB1 = np.frombuffer(b"<Lab1> ", np.uint8)
_LAB2 = np.frombuffer(b"<Lab2> ", np.uint8)
_LABELS = np.frombuffer(b"<Labels> ", np.uint8)
_INPUT = np.frombuffer(b"<InputFrames> ", np.uint8)
_LEFT = np.frombuffer(b"<LeftContext> ", np.uint8)
_SPK = np.frombuffer(b"<SpkInfo> FV ", np.uint8)
_END = np.frombuffer(b"</NnetExample> ", np.uint8)
_CM = np.frombuffer(b"CM ", np.uint8)
_CM2 = np.frombuffer(b"CM2 ", np.uint8)
_CM3 = np.frombuffer(b"CM3 ", np.uint8)
_FM = np.frombuffer(b"FM ", np.uint8)
_DM = np.frombuffer(b"DM ", np.uint8)

jit = numba.njit(cache=True, nogil=True)


@jit
def _is(buf, at, token):
    """Whether `token` stands at offset `at`."""
    if at + token.size > buf.size:
        return False
    for i in range(token.size):  # noqa: SIM110 (numba has no all())
        if buf[at + i] != token[i]:
            return False
    return True


@jit
def _i32(buf, at):
    """The little-endian int32 at `at` (the caller checked the bounds)."""
    value = np.int64(buf[at]) | np.int64(buf[at + 1]) << 8 | np.int64(buf[at + 2]) << 16 | np.int64(buf[at + 3]) << 24
    return value - (1 << 32) if value >= (1 << 31) else value


@jit
def _u16(buf, at):
    return np.int64(buf[at]) | np.int64(buf[at + 1]) << 8


@jit
def _missing(buf, at, code, longest):
    """The error for an unmet expectation: truncation when the archive ends within what could still be the token."""
    return TRUNCATED if buf.size - at < longest else code


@jit
def _scan_labels(buf, at, row):
    """Fills FRAMES, LABEL_KIND and LABELS of an index row. Returns (error, offset after the labels)."""
    if _is(buf, at, _LAB1):
        kind, at = LAB1, at + _LAB1.size
    elif _is(buf, at, _LAB2):
        kind, at = LAB2, at + _LAB2.size
    elif _is(buf, at, _LABELS):
        kind, at = LABELS_OLD, at + _LABELS.size
    else:
        return _missing(buf, at, NO_LABELS, 9), at
    row[LABEL_KIND] = kind
    frames = 1
    if kind != LABELS_OLD:
        if at + 5 > buf.size:
            return TRUNCATED, at
        if buf[at] != 4:
            return BAD_INT, at
        frames = _i32(buf, at + 1)
        if frames <= 0:
            return BAD_SIZE, at
        at += 5
    row[FRAMES] = frames
    row[LABELS] = at
    if kind == LAB1:
        at += 4 * frames
    else:
        for _ in range(frames):
            if at + 5 > buf.size:
                return TRUNCATED, at
            if buf[at] != 4:
                return BAD_INT, at
            count = _i32(buf, at + 1)
            if count < 0:
                return BAD_SIZE, at
            at += 5
            if at + 10 * count > buf.size:
                return TRUNCATED, at
            for _ in range(count):
                if buf[at] != 4 or buf[at + 5] != 4:
                    return BAD_INT, at
                at += 10
    return (TRUNCATED if at > buf.size else 0), at


@jit
def _scan_matrix(buf, at, row):
    """Fills FORMAT, ROWS, COLS and DATA (of the 16-byte header, or of the elements of FM and DM)."""
    if _is(buf, at, _CM):
        kind, at = CM, at + 3
    elif _is(buf, at, _CM2):
        kind, at = CM2, at + 4
    elif _is(buf, at, _CM3):
        kind, at = CM3, at + 4
    elif _is(buf, at, _FM):
        kind, at = FM, at + 3
    elif _is(buf, at, _DM):
        kind, at = DM, at + 3
    else:
        return _missing(buf, at, BAD_MATRIX, 4), at
    row[FORMAT] = kind
    if kind <= CM3:
        if at + 16 > buf.size:
            return TRUNCATED, at
        row[DATA] = at
        rows, cols = _i32(buf, at + 8), _i32(buf, at + 12)
        at += 16
    else:
        if at + 10 > buf.size:
            return TRUNCATED, at
        if buf[at] != 4 or buf[at + 5] != 4:
            return BAD_INT, at
        rows, cols = _i32(buf, at + 1), _i32(buf, at + 6)
        at += 10
        row[DATA] = at
    if rows <= 0 or cols <= 0:
        return BAD_SIZE, at
    row[ROWS], row[COLS] = rows, cols
    if kind == CM:
        column = 8 + rows
    elif kind == CM2:
        column = 2 * rows
    elif kind == CM3:
        column = rows
    else:
        column = (4 if kind == FM else 8) * rows
    if cols > (buf.size - at) // column:  # the product may overflow
        return TRUNCATED, at
    return 0, at + column * cols


@jit
def _scan_one(buf, at, row):
    """One entry at offset `at` into `row`. Returns (error, offset): where it failed, or the entry's end."""
    row[START] = at
    while at < buf.size and buf[at] != 32 and buf[at] != 9:
        if buf[at] < 32:
            return NO_KEY, at
        at += 1
    if at == row[START]:
        return NO_KEY, at
    row[KEY_END] = at
    at += 1
    if at + 2 > buf.size:
        return TRUNCATED, at
    if buf[at] != 0 or buf[at + 1] != 66:
        return NO_BINARY, at
    if not _is(buf, at, _EXAMPLE):
        return _missing(buf, at, NO_EXAMPLE, _EXAMPLE.size), at
    error, at = _scan_labels(buf, at + _EXAMPLE.size, row)
    if error:
        return error, at
    if not _is(buf, at, _INPUT):
        return _missing(buf, at, NO_INPUT, _INPUT.size), at
    error, at = _scan_matrix(buf, at + _INPUT.size, row)
    if error:
        return error, at
    if not _is(buf, at, _LEFT):
        return _missing(buf, at, NO_LEFT, _LEFT.size), at
    at += _LEFT.size
    if at + 5 > buf.size:
        return TRUNCATED, at
    if buf[at] != 4:
        return BAD_INT, at
    row[LEFT] = _i32(buf, at + 1)
    at += 5
    if row[LEFT] < 0 or row[LEFT] + row[FRAMES] > row[ROWS]:
        return BAD_SIZE, at
    if not _is(buf, at, _SPK):
        return _missing(buf, at, NO_SPK, _SPK.size), at
    at += _SPK.size
    if at + 5 > buf.size:
        return TRUNCATED, at
    if buf[at] != 4:
        return BAD_INT, at
    row[SPK_DIM] = _i32(buf, at + 1)
    at += 5
    if row[SPK_DIM] < 0:
        return BAD_SIZE, at
    row[SPK] = at
    at += 4 * row[SPK_DIM]
    if at > buf.size:
        return TRUNCATED, at
    if not _is(buf, at, _END):
        return _missing(buf, at, NO_END, _END.size), at
    row[END] = at + _END.size
    return 0, at + _END.size


@jit
def scan(buf):
    """Index of an archive. buf (bytes,) uint8 -> (index (M, NUM_FIELDS) int64, error, offset of the error)."""
    index = np.empty((buf.size // 512 + 16, NUM_FIELDS), np.int64)
    count = 0
    at = 0
    while True:
        while at < buf.size and (buf[at] == 32 or 9 <= buf[at] <= 13):
            at += 1
        if at == buf.size:
            break
        if count == index.shape[0]:
            grown = np.empty((2 * count, NUM_FIELDS), np.int64)
            for e in range(count):  # a slice would take seconds to compile
                for field in range(NUM_FIELDS):
                    grown[e, field] = index[e, field]
            index = grown
        error, at = _scan_one(buf, at, index[count])
        if error:
            return index[: count + 1], error, at
        count += 1
    return index[:count], 0, at


@jit
def count_labels(buf, index):
    """Labels in each frame of every example, in order: (total frames,) int64."""
    counts = np.ones(index[:, FRAMES].sum(), np.int64)
    frame = 0
    for e in range(index.shape[0]):
        at = index[e, LABELS]
        if index[e, LABEL_KIND] == LAB1:
            frame += index[e, FRAMES]
            continue
        for _ in range(index[e, FRAMES]):
            counts[frame] = _i32(buf, at + 1)
            at += 5 + 10 * counts[frame]
            frame += 1
    return counts


@jit
def read_labels(buf, index, pdf, weight_at):
    """Fills pdf (K,) int32 and weight_at (K,) int64: the offset of the float, or -1 for weight 1."""
    k = 0
    for e in range(index.shape[0]):
        at = index[e, LABELS]
        if index[e, LABEL_KIND] == LAB1:
            for _ in range(index[e, FRAMES]):
                pdf[k] = _i32(buf, at)
                weight_at[k] = -1
                at += 4
                k += 1
            continue
        for _ in range(index[e, FRAMES]):
            count = _i32(buf, at + 1)
            at += 5
            for _ in range(count):
                pdf[k] = _i32(buf, at + 1)
                weight_at[k] = at + 6
                at += 10
                k += 1


@jit
def _quantile(low, extent, code):
    return low + extent * np.float32(1.52590218966964e-05) * np.float32(code)


@jit
def decode(buf, index, ranges, example, first, out):
    """Rows `first[n]` … of the input matrix of example `example[n]` into out (N, W, >= D) float32.

    `ranges` (M, 2) float32 holds the minimum and range of compressed matrices. Other formats are left out. The
    arithmetic is Kaldi's, in its precision: quantiles in float32, interpolation in float64, rounded once.
    """
    width = out.shape[1]
    # Three linear pieces between the quantiles; looked up, because a branch on random bytes costs more.
    start, slope = np.empty(3, np.float32), np.empty(3, np.float32)
    origin = np.array([0, 64, 192], np.float32)
    scale = np.array([1 / 64.0, 1 / 128.0, 1 / 63.0])
    for n in range(example.size):
        e = example[n]
        rows, cols, kind = index[e, ROWS], index[e, COLS], index[e, FORMAT]
        low, extent = ranges[e, 0], ranges[e, 1]
        data = index[e, DATA] + 16
        if kind == CM:
            element = data + 8 * cols + first[n]
            for c in range(cols):
                start[0] = _quantile(low, extent, _u16(buf, data))
                start[1] = _quantile(low, extent, _u16(buf, data + 2))
                start[2] = _quantile(low, extent, _u16(buf, data + 4))
                slope[0] = start[1] - start[0]
                slope[1] = start[2] - start[1]
                slope[2] = _quantile(low, extent, _u16(buf, data + 6)) - start[2]
                data += 8
                for w in range(width):
                    code = np.int32(buf[element + w])
                    k = np.int32(code > 64) + np.int32(code > 192)
                    step = slope[k] * (np.float32(code) - origin[k])
                    out[n, w, c] = np.float32(np.float64(start[k]) + np.float64(step) * scale[k])
                element += rows
        elif kind in (CM2, CM3):
            unit = np.float32(np.float64(extent) * (1.0 / 65535.0 if kind == CM2 else 1.0 / 255.0))
            size = 2 if kind == CM2 else 1
            at = data + size * cols * first[n]
            for w in range(width):
                for c in range(cols):
                    code = _u16(buf, at) if kind == CM2 else np.int64(buf[at])
                    out[n, w, c] = low + np.float32(code) * unit
                    at += size


@jit
def _put(out, at, bits, size):
    """`size` little-endian bytes of the number `bits` at `at`. Returns the offset behind them."""
    for i in range(size):
        out[at + i] = (bits >> (8 * i)) & 255
    return at + size


@jit
def _code16(value, low, extent):
    """Equation (1) of `codec`: 0..65535."""
    fraction = min(max((value - low) / extent, np.float32(0)), np.float32(1))
    return np.int32(np.float64(fraction * np.float32(65535)) + 0.499)


@jit
def _range(feats, first, rows, top):
    """Minimum and range of input rows first.. (before 0 and behind `top` the nearest), as `codec.encode`."""
    low = high = feats[min(max(first, 0), top), 0]
    for w in range(rows):
        t = min(max(first + w, 0), top)
        for c in range(feats.shape[1]):
            low, high = min(low, feats[t, c]), max(high, feats[t, c])
    if low == high:
        high = np.float32(np.float64(low) + (1.0 + abs(np.float64(low))))
    return low, high - low


@jit
def _put_column(out, header, at, column, ordered, low, extent):
    """Equations (2) and (3) of `codec` for `column` (rows >= 5,), its header and its bytes; `ordered` is room."""
    rows = column.size
    for w in range(rows):  # sorted by insertion: there are few
        k = w
        while k > 0 and ordered[k - 1] > column[w]:
            ordered[k] = ordered[k - 1]
            k -= 1
        ordered[k] = column[w]
    q = np.empty(4, np.float32)
    previous = np.int32(-1)
    for i in range(4):
        place = (0, rows // 4, 3 * (rows // 4), rows - 1)[i]
        previous = min(max(_code16(ordered[place], low, extent), previous + 1), 65532 + i)
        header = _put(out, header, previous, 2)
        q[i] = _quantile(low, extent, previous)
    origin = (0, 64, 192)
    steps = (np.float32(64), np.float32(128), np.float32(63))
    for w in range(rows):
        k = int(column[w] >= q[1]) + int(column[w] >= q[2])
        fraction = (column[w] - q[k]) / (q[k + 1] - q[k])
        step = np.float64(fraction * steps[k]) + 0.5
        out[at + w] = origin[k] + int(min(max(step, 0.0), np.float64(steps[k])))


@jit
def encode(feats, first, rows, out):
    """Input matrices of examples, compressed: rows first[n] .. first[n] + rows - 1 of feats (T, D) float32 into out[n].

    Before the first and behind the last row of `feats` these two are repeated. out (N, 16 + payload) uint8 gets header
    and payload, CM for more than 8 rows, else CM2: the bytes of `CompressedMatrix.from_dense`, at 30 times its speed.
    """
    cols, top = feats.shape[1], feats.shape[0] - 1
    column, ordered = np.empty(rows, np.float32), np.empty(rows, np.float32)
    floats = np.empty(2, np.float32)
    for n in range(first.size):
        low, extent = _range(feats, first[n], rows, top)
        floats[0], floats[1] = low, extent
        bits = floats.view(np.uint32)
        at = _put(out[n], _put(out[n], 0, bits[0], 4), bits[1], 4)
        at = _put(out[n], _put(out[n], at, rows, 4), cols, 4)
        if rows <= 8:
            for w in range(rows):
                t = min(max(first[n] + w, 0), top)
                for c in range(cols):
                    at = _put(out[n], at, _code16(feats[t, c], low, extent), 2)
            continue
        for c in range(cols):
            for w in range(rows):
                column[w] = feats[min(max(first[n] + w, 0), top), c]
            _put_column(out[n], at + 8 * c, at + 8 * cols + rows * c, column, ordered, low, extent)
