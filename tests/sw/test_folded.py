"""Cases folded into one test: all run, and a wrong one is named."""

import pytest
from folded import each

SEEN = []


@pytest.fixture
def unit():
    return 2


@pytest.mark.parametrize("sign", [1, -1])
@each("number, name", [(3, "a"), (4, "b")])
def test_folded_cases_share_fixtures_and_parameters(number, name, unit, sign):
    SEEN.append((sign * number * unit, name))


def test_folded_cases_all_run_in_order():
    assert SEEN[:2] == [(6, "a"), (8, "b")] and SEEN[2:] == [(-6, "a"), (-8, "b")]


def test_folded_wrong_case_is_named_by_a_note():
    @each("number", range(5), ids=lambda number: f"no. {number}")
    def below_three(number):
        assert number < 3

    with pytest.raises(AssertionError) as raised:
        below_three()
    assert raised.value.__notes__ == ["number: no. 3"]


def test_folded_case_that_skips_is_an_error():
    @each("number", range(2))
    def skipping(number):
        pytest.skip("not here")

    with pytest.raises(TypeError, match="number 0 skips the cases after it"):
        skipping()
