"""Every operation that Kaldi was run for agrees with it: the rows of the report, one by one."""

from tests.golden_operations import operations


def test_every_operation_agrees_with_kaldi(golden):
    rows = list(operations(golden))
    assert len(rows) >= 39
    assert [(case, difference) for case, difference, bound in rows if not difference <= bound] == []
