"""Nodes and NICs: shared, and numbered by first appearance."""

import pytest
from helpers.schedules import nodes_of

from atlas_lp.errors import InputError
from atlas_lp.signatures.placement import by_first_appearance, members_of_nodes, placed, shared_nics


def test_nics() -> None:
    assert shared_nics(nodes_of(2, 4)) == [0, 1, 2, 3] * 2
    assert shared_nics(nodes_of(2, 4), 2) == [0, 0, 1, 1] * 2


def test_numbers_do_not_depend_on_names() -> None:
    assert by_first_appearance([7, 7, 2, 7, 5]) == [0, 0, 1, 0, 2]
    assert members_of_nodes([7, 2, 7, 5]) == [[0, 2], [1], [3]]
    assert placed([2, 0, 1], [9, 4, 9], [3, 3, 8]) == ((0, 0, 1), (0, 1, 0))
    assert placed([2, 0, 1], [9, 4, 9], None) == ((0, 0, 1), (0, 1, 0))


def test_a_nic_for_every_rank() -> None:
    with pytest.raises(InputError, match="1 NICs for 2 ranks"):
        placed([0, 1], [0, 1], [0])
