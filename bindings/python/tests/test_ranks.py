"""Runs the tests of the folder `ranks`, which are collective, on several numbers of ranks."""

import pytest

import jobs


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_collective_calls(ranks):
    text, status = jobs.run(ranks, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "ranks", limit=150)
    assert status == 0, text
    assert text.count(" passed") == ranks, text
