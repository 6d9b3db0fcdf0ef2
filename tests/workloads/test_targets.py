"""What conversion writes can be read, and what it cannot carry is counted."""

from pathlib import Path

import numpy as np
from canonical_files import everything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import EXAMPLE_FILES

from workloads import open_file
from workloads.azure import Azure
from workloads.blockwise import block_ids, hits_lost
from workloads.content import ContentBuilder
from workloads.mooncake import Mooncake
from workloads.sharing import prefix_hits
from workloads.targets import write_azure, write_mooncake, write_vidur
from workloads.trace import Trace

runs = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([0, 512, 700]), st.integers(1, 1100)),
    min_size=1,
    max_size=3,
)


def sharing(prompts, **more) -> Trace:
    builder = ContentBuilder()
    lengths = [sum(run[2] for run in prompt) for prompt in prompts]
    for prompt, length in zip(prompts, lengths, strict=True):
        builder.add(prompt, length)
    times = np.arange(len(prompts)) * 1_000_000
    ones = np.ones(len(prompts), np.int64)
    return Trace(times, np.array(lengths), ones, content=builder.build(), **more)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)
@given(prompts=st.lists(runs, min_size=1, max_size=8), data=st.data())
def test_mooncake_loses_the_hits_that_it_says_and_no_others(
    tmp_path: Path, prompts, data: st.DataObject
) -> None:
    spaces = st.lists(st.integers(0, 1), min_size=len(prompts), max_size=len(prompts))
    trace = sharing(prompts, namespace=np.array(data.draw(spaces)))
    assert trace.content is not None
    lost = write_mooncake(trace, tmp_path / "t.jsonl")
    read = Mooncake(str(tmp_path / "t.jsonl")).load(0)
    assert read.content is not None
    less = hits_lost(trace.content, 512, trace.namespace)
    before = prefix_hits(trace.content, trace.namespace)
    assert prefix_hits(read.content).tolist() == (before - less).tolist()
    key = "shares less: prefixes that end within a block of 512"
    assert lost.get(key, 0) == np.count_nonzero(less)
    assert read.arrival_ns.tolist() == trace.arrival_ns.tolist()


@given(st.lists(runs, min_size=1, max_size=6), st.integers(1, 600))
def test_blocks_have_the_same_id_if_prompts_are_equal_up_to_their_ends(prompts, size) -> None:
    content = sharing(prompts).content
    assert content is not None
    found: dict[int, set[tuple]] = {}
    for prompt, ids in zip(prompts, block_ids(content, size), strict=True):
        tokens = [(source, start + i) for source, start, length in prompt for i in range(length)]
        assert len(ids) == -(-len(tokens) // size)
        for i, number in enumerate(ids):
            found.setdefault(number, set()).add(tuple(tokens[: (i + 1) * size]))
    assert sorted(found) == list(range(len(found)))
    assert all(len(beginnings) == 1 for beginnings in found.values())
    assert len(set().union(*found.values())) == len(found)


def test_mooncake_says_what_it_cannot_carry(tmp_path: Path) -> None:
    assert write_mooncake(everything(), tmp_path / "t.jsonl") == {
        "no max_tokens": 3,
        "no session": 3,
        "no parent": 1,
        "no think_ns": 3,
        "no num_samples": 3,
        "no beam_width": 3,
        "no priority": 3,
        "arrival rounded to a millisecond": 1,
        "shares less: prefixes that end within a block of 512": 1,
        "output of an earlier request in the prompt": 1,
    }


def test_without_prefix_identity_mooncake_ids_are_made_up_and_shared_by_none(
    tmp_path: Path,
) -> None:
    trace = Trace(np.array([0, 10**9]), np.array([600, 600]), np.array([1, 1]))
    lost = write_mooncake(trace, tmp_path / "t.jsonl")
    assert lost == {"hash_ids made up: the source does not know what prompts share": 2}
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    assert lines[1] == (
        '{"timestamp": 1000, "input_length": 600, "output_length": 1, "hash_ids": [2, 3]}'
    )
    assert open_file(str(tmp_path / "t.jsonl")).kind == "mooncake"


def test_azure_stamps_count_100_ns_and_lose_the_time_before_the_first(tmp_path: Path) -> None:
    times = np.array([86_400_000_000_150, 86_401_000_000_000, 86_401_000_000_100])
    trace = Trace(times, np.array([3, 4, 5]), np.array([6, 7, 8]))
    lost = write_azure(trace, tmp_path / "t.csv")
    assert lost == {
        "arrival rounded to 100 ns": 1,
        "arrival counted from the first one when read": 3,
    }
    text = (tmp_path / "t.csv").read_text()
    assert text.splitlines()[1] == "1970-01-02 00:00:00.0000002,3,6"
    read = Azure(str(tmp_path / "t.csv")).load(0)
    assert read.arrival_ns.tolist() == [0, 999_999_800, 999_999_900]
    assert read.output_tokens.tolist() == [6, 7, 8]


def test_azure_to_azure_is_the_same_trace(tmp_path: Path, traces: Path) -> None:
    trace = open_file(str(traces / "azure" / "AzureLLMInferenceTrace_conv.csv")).load(0)
    assert write_azure(trace, tmp_path / "t.csv") == {}
    assert open_file(str(tmp_path / "t.csv")).load(0).digest() == trace.digest()


def test_mooncake_to_mooncake_shares_the_same(tmp_path: Path, traces: Path) -> None:
    trace = open_file(str(traces / "mooncake" / "mooncake_trace_1000.jsonl")).load(0)
    assert write_mooncake(trace, tmp_path / "t.jsonl") == {}
    read = open_file(str(tmp_path / "t.jsonl")).load(0)
    assert read.content is not None
    assert trace.content is not None
    assert prefix_hits(read.content).tolist() == prefix_hits(trace.content).tolist()
    assert write_mooncake(read, tmp_path / "u.jsonl") == {}
    assert (tmp_path / "u.jsonl").read_bytes() == (tmp_path / "t.jsonl").read_bytes()


def test_vidur_carries_times_to_the_nanosecond_and_nothing_but_lengths(tmp_path: Path) -> None:
    lost = write_vidur(everything(), tmp_path / "t.csv")
    assert lost["no prefix identity"] == lost["no namespace"] == 3
    assert (tmp_path / "t.csv").read_text() == (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.000000005,100,20\n1,120,7\n2.5,3,1\n"
    )


def test_outputs_that_later_prompts_show_are_counted_where_a_target_drops_them(write, tmp_path):
    file = open_file(write(*EXAMPLE_FILES["bailian"]))
    lost = write_mooncake(file.load(0), tmp_path / "m.jsonl")
    assert lost["output of an earlier request in the prompt"] == 1
