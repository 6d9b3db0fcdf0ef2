"""Blocks of any size get the matches that comparing token by token gives."""

from hypothesis import given
from hypothesis import strategies as st

from workloads.blockkeys import BlockKeys
from workloads.content import Content, ContentBuilder, Run

runs = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=6
)
prompts = st.lists(runs, min_size=2, max_size=8)


def build(lists: list[list[Run]]) -> Content:
    builder = ContentBuilder()
    for cells in lists:
        builder.add(cells, sum(length for _, _, length in cells))
    return builder.build()


def tokens(cells: list[Run]) -> list[tuple[int, int]]:
    return [(source, start + i) for source, start, length in cells for i in range(length)]


@given(prompts, st.integers(1, 12))
def test_blocks_are_equal_where_all_tokens_up_to_their_ends_are(
    lists: list[list[Run]], block_size: int
) -> None:
    """Also for sizes that do not divide the runs, and for one prompt against itself."""
    content, keys = build(lists), BlockKeys(block_size)
    found = [keys.extend(keys.root(), content.runs(i)) for i in range(len(lists))]
    words = [tokens(cells) for cells in lists]
    for word, own in zip(words, found, strict=True):
        assert len(own) == len(word) // block_size
        for other_word, other in zip(words, found, strict=True):
            for i, (key, other_key) in enumerate(zip(own, other, strict=False)):
                end = (i + 1) * block_size
                assert (key == other_key) == (word[:end] == other_word[:end])
    assert len({key for own in found for key in own}) <= len(keys)


@given(runs, st.integers(1, 9), st.integers(0, 20))
def test_content_that_grows_continues_its_keys(
    cells: list[Run], block_size: int, num_blocks: int
) -> None:
    """Cut at a block's end, the rest behind the last block gives the rest of the keys."""
    content, keys = build([cells]), BlockKeys(block_size)
    whole = keys.extend(keys.root(), content.runs(0))
    cut = min(num_blocks, len(whole)) * block_size
    head, tail, seen = [], [], 0
    for source, start, length in content.runs(0):
        in_head = max(0, min(length, cut - seen))
        if in_head:
            head.append((source, start, in_head))
        if length > in_head:
            tail.append((source, start + in_head, length - in_head))
        seen += length
    first = keys.extend(keys.root(), head)
    assert first + keys.extend(first[-1] if first else keys.root(), tail) == whole


def test_namespaces_do_not_share_and_keys_behind_different_blocks_differ() -> None:
    keys = BlockKeys(4)
    base, adapter = keys.root(), keys.root(1)
    same = [(1, 0, 8)]
    assert keys.extend(base, same) == keys.extend(base, same) != keys.extend(adapter, same)
    (other, behind) = keys.extend(base, [(1, 8, 4), (1, 4, 4)])
    assert behind != keys.extend(base, same)[1] != other


def test_a_smaller_and_a_larger_block_than_the_traces_own_find_the_same_tokens() -> None:
    """Prompts of three and two blocks of 512 share the first: 512 tokens in any size."""
    builder = ContentBuilder()
    builder.add_blocks([0, 1, 2], 512, 1400, "trace")
    builder.add_blocks([0, 7], 512, 900, "trace")
    content = builder.build()
    for size, shared in ((16, 32), (100, 5), (512, 1), (768, 0)):
        keys = BlockKeys(size)
        first, second = (keys.extend(keys.root(), content.runs(i)) for i in range(2))
        assert sum(a == b for a, b in zip(first, second, strict=False)) == shared
