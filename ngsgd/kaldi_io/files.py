"""Opening what Kaldi calls rxfilenames and wxfilenames: files, offsets, pipes, standard streams.

An rxfilename is `-`, `FILE`, `FILE:OFFSET` or `COMMAND |`; a wxfilename is `-`, `FILE` or `| COMMAND`. Commands run
under `bash -o pipefail`, and their exit status is checked; with `--no-pipes`, or NGSGD_NO_PIPES in the environment,
none runs. A file being written appears only when it is whole.
"""

import functools
import io
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ngsgd.errors import DataError

NO_PIPES = "NGSGD_NO_PIPES"
"""Environment variable: set to anything but 0 or false, pipes are refused, also in the programs started from here."""
_SIGPIPE_STATUSES = (-13, 141)
_PIPE_BUFFER = 1 << 16


def refuse_pipes() -> None:
    """From now on no command of an rxfilename or wxfilename is run, in this process and its children."""
    os.environ[NO_PIPES] = "1"


def pipes_are_refused() -> bool:
    """Whether commands in rxfilenames and wxfilenames are refused."""
    return os.environ.get(NO_PIPES, "").lower() not in ("", "0", "false")


def _shell(pipe: str, command: str, **options: int) -> subprocess.Popen:
    """Start the command of a pipe. Raises DataError where pipes are refused; nothing has run then."""
    if pipes_are_refused():
        raise DataError(
            f"refused to run the command of the pipe '{pipe}': --no-pipes or {NO_PIPES} is set; expected a plain file"
        )
    return subprocess.Popen(["bash", "-o", "pipefail", "-c", command], **options)


class _CountingFile(io.FileIO):
    """An unbuffered reader of a pipe that knows how many bytes it gave, so that messages can say where."""

    _given = 0

    def readinto(self, buffer) -> int | None:
        count = super().readinto(buffer)
        self._given += count or 0
        return count

    def readall(self) -> bytes:
        data = super().readall()
        self._given += len(data or b"")
        return data

    def tell(self) -> int:
        return self._given


def _counting(descriptor: int) -> BinaryIO:
    return io.BufferedReader(_CountingFile(descriptor, closefd=False), _PIPE_BUFFER)


@functools.cache
def _standard_input() -> BinaryIO:
    """One for the whole process, as what is buffered in it would be lost to another."""
    if sys.stdin is None:
        raise DataError("cannot read standard input: it is closed")
    return sys.stdin.buffer if sys.stdin.seekable() else _counting(sys.stdin.fileno())


def is_input_pipe(rxfilename: str) -> bool:
    """Whether the rxfilename is a command to read from."""
    return rxfilename.rstrip().endswith("|")


@contextmanager
def open_bytes(rxfilename: str) -> Iterator[BinaryIO]:
    """A binary file object (with `peek`) over an rxfilename.

    Raises DataError for a file that cannot be opened, and for a command that fails; a command that was not read to its
    end may die of the closed pipe.
    """
    rxfilename = rxfilename.strip()
    if rxfilename == "-":
        yield _standard_input()
    elif rxfilename.startswith("|"):
        raise DataError(f"'{rxfilename}' is to be read: the '|' of an input pipe stands behind the command")
    elif is_input_pipe(rxfilename):
        with _open_input_pipe(rxfilename) as stream:
            yield stream
    else:
        with open_file(rxfilename) as stream:
            yield stream


def split_offset(rxfilename: str) -> tuple[str, int | None]:
    """`feats.ark:123` -> ("feats.ark", 123); without an offset the number is None."""
    match = re.fullmatch(r"(.+):(\d+)", rxfilename)
    return (match[1], int(match[2])) if match else (rxfilename, None)


def open_file(rxfilename: str) -> BinaryIO:
    """A file opened for reading at its offset (`FILE:OFFSET`). Raises DataError when that cannot be done."""
    path, offset = split_offset(rxfilename)
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        hint = "; '~' is not expanded, write the whole path" if path.startswith("~") else ""
        raise DataError(f"cannot open {path}: {error.strerror}{hint}") from None
    if offset is not None:
        stream.seek(offset)
    return stream


@contextmanager
def _open_input_pipe(rxfilename: str) -> Iterator[BinaryIO]:
    command = rxfilename.rstrip()[:-1].strip()
    process = _shell(rxfilename, command, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    stdout = _counting(process.stdout.fileno())
    try:
        yield stdout
    except BaseException:
        process.stdout.close()
        status = process.wait()
        if status and status not in _SIGPIPE_STATUSES:
            # The reader's complaint (an unexpected end, say) follows from the command's failure: name the cause.
            raise DataError(_pipe_failure(rxfilename, command, status)) from None
        raise
    read_to_end = stdout.read(1) == b""
    process.stdout.close()
    status = process.wait()
    if status and (read_to_end or status not in _SIGPIPE_STATUSES):
        raise DataError(_pipe_failure(rxfilename, command, status))


def _pipe_failure(rxfilename: str, command: str, status: int) -> str:
    stray = f"; '{command}' is a file: remove the stray '|'" if os.path.isfile(command) else ""
    return f"the input pipe '{rxfilename}' failed with status {status}{stray}"


@contextmanager
def open_bytes_writer(wxfilename: str) -> Iterator[BinaryIO]:
    """A binary file object over a wxfilename; a regular file is written aside, flushed and renamed when all went well.

    Raises DataError when the file cannot be made, the disk is full, or the command fails.
    """
    wxfilename = wxfilename.strip()
    if wxfilename in ("-", ""):
        with _standard_output() as stream:
            yield stream
    elif wxfilename.startswith("|"):
        with _open_output_pipe(wxfilename) as stream:
            yield stream
    elif wxfilename.endswith("|"):
        raise DataError(f"'{wxfilename}' is to be written: the '|' of an output pipe stands before the command")
    elif _is_special(wxfilename):
        try:
            with open(wxfilename, "wb") as stream:
                yield stream
        except OSError as error:
            raise DataError(f"cannot write {wxfilename}: {error.strerror or error}") from None
    else:
        with _open_aside(wxfilename) as stream:
            yield stream


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise DataError("cannot write standard output: it is closed")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise DataError(f"cannot write standard output: {error.strerror}") from None


def _is_special(path: str) -> bool:
    """A device or named pipe, which cannot be replaced by renaming."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path)
    except OSError:
        return False


@contextmanager
def _open_aside(path: str) -> Iterator[BinaryIO]:
    aside = f"{path}.tmp.{os.getpid()}"
    try:
        stream = open(aside, "wb")  # noqa: SIM115
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except OSError as error:
        _remove(aside)
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        _remove(aside)
        raise


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


@contextmanager
def _open_output_pipe(wxfilename: str) -> Iterator[BinaryIO]:
    process = _shell(wxfilename, wxfilename[1:].strip(), stdin=subprocess.PIPE)
    assert process.stdin is not None
    failure = f"the output pipe '{wxfilename}' failed with status "
    try:
        yield process.stdin
        process.stdin.close()
    except BrokenPipeError:
        status = process.wait()
        what = f"{failure}{status}" if status else f"the output pipe '{wxfilename}' did not read to the end"
        raise DataError(what) from None
    except BaseException:
        process.kill()
        process.wait()
        raise
    status = process.wait()
    if status:
        raise DataError(failure + str(status))


@contextmanager
def open_text_writer(path: str) -> Iterator:
    """A UTF-8 text file object with the rules of `open_bytes_writer`."""
    import io

    with open_bytes_writer(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n", write_through=False)
        try:
            yield text
            text.flush()
        finally:
            text.detach()
