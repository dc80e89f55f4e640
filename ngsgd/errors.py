"""The one exception that is for the user and not for us."""


class DataError(Exception):
    """Bad input or nothing to do. Its text is one line: where, what was expected, what came, what to do.

    A program that raises it prints that line and exits 1 (`ngsgd.cli.program`).
    """
