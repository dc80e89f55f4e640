"""The one main function behind `utils/run.py` and its like."""

import os
import sys

from ngsgd.errors import DataError
from ngsgd.launch.registry import get_launcher
from ngsgd.launch.request import UsageError, parse


def main(launcher: str, doc: str) -> None:
    """Run the command line with the named launcher and exit: 0 all done, 1 some failed, 2 usage, 130 interrupted."""
    program, args = os.path.basename(sys.argv[0]), sys.argv[1:]
    if args[:1] in (["--help"], ["-h"]):
        print(doc.strip())
        sys.exit(0)
    try:
        request = parse(args)
        sys.exit(get_launcher(launcher)(request))
    except UsageError as error:
        print(f"{program}: {error}; see {program} --help", file=sys.stderr)
        sys.exit(2)
    except DataError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(1)
