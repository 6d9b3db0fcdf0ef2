"""What a replay takes from a recording is checked, too: steps, arrivals, slots."""

from recorded import Clock
from recorded_tree import TreeCase
from replay_tree import TreeReplay, tree_of

REQUESTS = [{"id": name, "arrival_step": step} for name, step in (("a", 0), ("b", 2), ("c", 9))]


def test_a_step_follows_the_one_before_it_or_is_the_next_arrival_s() -> None:
    clock = Clock(REQUESTS)
    assert [clock.at(step) for step in (0, 1, 2, 3, 9, 10)] == [
        {"step": 0, "arrived": ["a"]},
        {"step": 1, "arrived": []},
        {"step": 2, "arrived": ["b"]},
        {"step": 3, "arrived": []},
        {"step": 9, "arrived": ["c"]},
        {"step": 10, "arrived": []},
    ]


def test_a_recorded_step_that_cannot_be_is_not_taken_over() -> None:
    clock = Clock(REQUESTS)
    assert [clock.at(step)["step"] for step in (0, 7, 9, 12)] == [0, 1, 2, 3]


def test_recorded_slots_of_an_insert_are_those_of_pages() -> None:
    """Five tokens in pages of two: slots 4 to 7, and the first of a page that is not whole."""
    slots = [4, 5, 6, 7, 8]
    op = {"op": "insert", "key": [1, 2, 3, 4, 5], "extra_key": None}
    case = TreeCase("a", {"page_size": 2}, [op], [])
    for recorded in (slots, [4, 9, 6, 7, 8]):
        ours = TreeReplay(case, tree_of(case))._insert(op, {"value": recorded}, [])
        assert ours == {"prefix_len": 0, "value": slots}
