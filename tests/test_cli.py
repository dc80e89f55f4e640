"""Options, configuration files and exit statuses, as a user of any program sees them."""

import sys
import textwrap

import numpy as np
import pytest

from ngsgd import cli
from ngsgd.errors import DataError
from ngsgd.options import format_options
from ngsgd.registry import Registry

PROGRAM = '''
"""Print the options.

Usage: prog [options] WHAT
e.g.:  prog x
"""
from dataclasses import dataclass
from ngsgd import cli
from ngsgd.options import opt, format_options

@dataclass
class DemoOptions:
    num_ceps: int = opt(13, "number of cepstra")
    use_energy: bool = opt(True, "whether to use energy")
    window_type: str = opt("povey", "window", choices=("povey", "hamming"))
    share: float = opt(-1.0, "share of the energy", above=0, at_most=1)

@cli.program(__doc__)
@cli.options_from(DemoOptions)
@cli.argument("what")
def main(demo, what):
    if what == "nothing":
        cli.finish(0, 3)
    if what == "most-fail":
        cli.finish(1, 2)
    if what == "missing":
        open("no/such/file")
    print(format_options(demo), end="")

if __name__ == "__main__":
    main()
'''


@pytest.fixture
def prog(run, tmp_path):
    path = tmp_path / "prog"
    path.write_text(textwrap.dedent(PROGRAM).lstrip())

    def call(*args, **kwargs):
        return run(sys.executable, path, *args, **kwargs)

    return call


def test_defaults_config_file_and_command_line(prog, tmp_path):
    (tmp_path / "c.conf").write_text("# comment\n--num-ceps=20  # more\n\n--use_energy=false\n")
    assert prog("x").stdout == "--num-ceps=13\n--use-energy=true\n--window-type=povey\n--share=-1.0\n"
    assert prog("--config=c.conf", "x").stdout.startswith("--num-ceps=20\n--use-energy=false")
    assert prog("--config=c.conf", "--num_ceps=7", "--use-energy", "x").stdout.startswith(
        "--num-ceps=7\n--use-energy=true"
    )


@pytest.mark.parametrize(
    ("args", "needle"),
    [
        (["--num-ceps=x", "x"], "--num-ceps"),
        (["--use-energy=maybe", "x"], "true or false"),
        (["--window-type=box", "x"], "hamming"),
        (["--share=0", "x"], "--share: expected above 0 and at most 1, got 0"),
        (["--share=1.5", "x"], "got 1.5"),
        (["--share=nan", "x"], "got nan"),
        (["--nonsense", "x"], "--nonsense"),
        ([], "WHAT"),
    ],
)
def test_usage_errors(prog, args, needle):
    result = prog(*args, status=2)
    assert needle in result.stderr
    assert "Usage: prog [options] WHAT" in result.stderr


def test_config_file_errors_name_the_line(prog, tmp_path):
    (tmp_path / "c.conf").write_text("\n--numceps=3\n")
    error = prog("--config=c.conf", "x", status=1).stderr
    assert "c.conf:2" in error and "num-ceps" in error
    assert "c.conf" in prog("--config=missing.conf", "x", status=1).stderr.replace("missing.conf", "c.conf")


@pytest.mark.parametrize("words", [["--use-energy", "false"], ["--use-energy=false"], ["--use_energy", "false"]])
def test_booleans_with_a_value(prog, words):
    assert "--use-energy=false" in prog(*words, "x").stdout


def test_a_bare_boolean_takes_no_argument(prog):
    assert "--use-energy=true" in prog("--use-energy", "x").stdout


@pytest.mark.parametrize("what", ["nothing", "most-fail", "missing"])
def test_bad_data_is_one_line(prog, what):
    result = prog(what, status=1)
    errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR (prog)")]
    assert len(errors) == 1 and "Traceback" not in result.stderr


def test_finish_counts():
    cli.finish(3, 3)
    with pytest.raises(DataError, match="2 of 3"):
        cli.finish(1, 2)


def test_registry_names_what_it_knows():
    registry = Registry("colour")
    registry.register("red", "rouge")(1)
    assert registry["rouge"] == 1 and list(registry) == ["red", "rouge"]
    with pytest.raises(DataError, match="unknown colour 'blue'; known: red, rouge"):
        registry["blue"]


def test_format_options_is_read_back(tmp_path):
    from dataclasses import dataclass

    from ngsgd.options import opt, read_config

    @dataclass
    class Some:
        a_b: float = opt(0.5, "x")

    (tmp_path / "o").write_text(format_options(Some(0.25)))
    assert read_config(str(tmp_path / "o"))[0][:2] == ("a_b", "0.25")


def test_a_consumer_that_closes_early_is_no_error(run, tmp_path):
    from ngsgd.kaldi_io.tables import Writer

    with Writer(f"ark:{tmp_path}/a.ark", "matrix") as out:
        for key in range(200):
            out.write(f"k{key}", np.zeros((100, 100), np.float32))
    result = run("bash", "-c", f"copy-feats ark:{tmp_path}/a.ark ark:- | head -c 10 | wc -c; echo ${{PIPESTATUS[0]}}")
    assert result.stdout.split() == ["10", "0"]
    assert "Traceback" not in result.stderr and "ERROR" not in result.stderr
