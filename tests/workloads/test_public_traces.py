"""Every public trace is read exactly: rows, sums, lengths, arrivals, and what prompts share.

EXPECTED.json in the folder of traces holds the true numbers. KVSIM_TRACES_DIR names another folder
of the same kind; without it the traces of KVSIM_SHARED are read.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.columns import Columns
from workloads.formats import open_file
from workloads.rows import Rows
from workloads.sharing import block_hits, prefix_hits

SHARED = Path(os.environ.get("KVSIM_SHARED", Path(__file__).parents[3] / "shared"))
FOLDER = Path(os.environ.get("KVSIM_TRACES_DIR", SHARED / "traces"))
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((FOLDER / "EXPECTED.json").read_text()) if FOLDER.exists() else {}
)

pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"there are no public traces at {FOLDER}")


def lengths_of(values: np.ndarray) -> dict[str, float]:
    median, p95 = np.percentile(values, [50, 95])
    numbers = {"mean": values.mean(), "median": median, "p95": p95, "max": values.max()}
    return {name: round(float(value), 2) for name, value in numbers.items()}


def facts_of(rows: Rows, wanted: dict[str, Any]) -> dict[str, Any]:
    """What EXPECTED.json says of a file, from the rows as they were read."""
    prompt, output = rows.fields["prompt_tokens"], rows.fields["output_tokens"]
    facts: dict[str, Any] = {
        "rows": len(rows),
        "prompt_sum": int(prompt.sum()),
        "output_sum": int(output.sum()),
        "prompt": lengths_of(prompt),
        "output": lengths_of(output),
        "zero_prompt": int((prompt == 0).sum()),
        "zero_output": int((output == 0).sum()),
    }
    if "arrivals" in wanted:
        facts["arrivals"] = arrivals_of(rows.fields["arrival_ns"])
    if "prefix" in wanted:
        facts["prefix"] = sharing_of(rows, wanted["prefix"]["block_size"])
    return facts


def arrivals_of(arrival_ns: np.ndarray) -> dict[str, float]:
    """As in workloads.summary, but in the order of the file, and rounded as EXPECTED.json is."""
    ordered = np.sort(arrival_ns)
    gaps = np.diff(ordered)
    span_s = int(ordered[-1] - ordered[0]) / 1e9
    bins = np.bincount((ordered - ordered[0]) // 10**9)
    return {
        "first": int(arrival_ns[0]) / 1e9,
        "last": int(arrival_ns[-1]) / 1e9,
        "span_s": round(span_s, 3),
        "rate_per_s": round(len(gaps) / span_s, 4),
        "iat_cv": round(float(gaps.std() / gaps.mean()), 3),
        "dispersion_1s": round(float(bins.var() / bins.mean()), 3),
        "zero_gaps": int((gaps == 0).sum()),
        "inversions": int((np.diff(arrival_ns) < 0).sum()),
    }


def sharing_of(rows: Rows, block_size: int) -> dict[str, float]:
    assert rows.content is not None
    prompt = rows.fields["prompt_tokens"]
    hits = prefix_hits(rows.content)
    blocks = -(-prompt // block_size)
    return {
        "block_size": block_size,
        "blocks": int(blocks.sum()),
        "hit_blocks_ratio": round(block_hits(hits, prompt, block_size).sum() / blocks.sum(), 4),
        "hit_tokens_ratio": round(hits.sum() / prompt.sum(), 4),
        "fully_cached_requests": int((hits == prompt).sum()),
    }


# tables of lengths in no format of their own: the columns that a file's note in EXPECTED.json names
TABLES = {
    "alpaca/alpaca_5000_lengths.csv.gz": ("opt_instruction_input", "opt_output"),
    "sharegpt/sharegpt_v3_turn_lengths.csv.gz": ("opt_prompt", "opt_output"),
    "wmt/newstest2016_ende_lengths.csv.gz": ("llama_en", "llama_de"),
}
FORMATS = {
    "apex/": "apex",
    "azure/": "azure",
    "burstgpt/": "burstgpt",
    "llmservingsim/share": "llmservingsim",
    "lmcache-agent/": "lmcache_agent",
    "mooncake/": "mooncake",
    "nanoflow/": "nanoflow",
    "ragpulse/0_trace": "ragpulse",
    "sharegpt/sharegpt_chat_": "bailian",
    "vidur/": "vidur",
}
PLAIN = {
    name: kind for name in EXPECTED for start, kind in FORMATS.items() if name.startswith(start)
}
AGENTS = [name for name in EXPECTED if name.startswith("kv-cache-tester/")]


@pytest.mark.parametrize("name", PLAIN)
def test_a_public_trace_is_recognized_and_read_exactly(name: str) -> None:
    file = open_file(str(FOLDER / name))
    assert file.kind == PLAIN[name]
    compare(file.raw(), EXPECTED[name])


@pytest.mark.parametrize("name", [name for name in TABLES if name in EXPECTED])
def test_a_public_table_of_lengths_is_read_exactly(name: str) -> None:
    prompt, output = TABLES[name]
    file = Columns(str(FOLDER / name), prompt_column=prompt, output_column=output)
    compare(file.raw(), EXPECTED[name])


def compare(rows: Rows, expected: dict[str, Any]) -> None:
    facts = facts_of(rows, expected)
    wanted = comparable(expected, facts)
    if "arrivals" in facts:  # EXPECTED.json was made with doubles and microseconds
        for end in ("first", "last"):
            assert facts["arrivals"].pop(end) == pytest.approx(
                wanted["arrivals"].pop(end), abs=1e-6
            )
    assert facts == wanted


def comparable(wanted: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The expected facts without those about the file itself and about ids that nobody counts."""
    known = {key: cell for key, cell in wanted.items() if key in facts}
    if "arrivals" in known:
        known["arrivals"] = dict(known["arrivals"])
    if "prefix" in known:
        prefix = known["prefix"]
        known["prefix"] = {key: cell for key, cell in prefix.items() if key != "unique_blocks"}
    return known


@pytest.mark.parametrize("name", AGENTS)
def test_a_session_of_a_coding_agent_is_read_exactly(name: str) -> None:
    rows = open_file(str(FOLDER / name)).raw()
    assert rows.content is not None
    size = EXPECTED[name]["block_size"]
    hits = prefix_hits(rows.content)
    assert (hits % size == 0).all()  # what is no whole block is the request's own
    facts = {
        "requests": len(rows),
        "subagents": rows.notes["sub-agents, whose requests are timed from their start"],
        "prompt_sum": int(rows.fields["prompt_tokens"].sum()),
        "output_sum": int(rows.fields["output_tokens"].sum()),
        "block_size": size,
        "blocks": int((rows.fields["prompt_tokens"] // size).sum()),
        "unique_blocks": num_shared_tokens(rows) // size,
        "prefix_hit_blocks": int(hits.sum()) // size,
    }
    assert facts == comparable(EXPECTED[name], facts)


def num_shared_tokens(rows: Rows) -> int:
    """How many different tokens there are beside those that are a request's own."""
    assert rows.content is not None
    last: dict[int, int] = {}
    count = 0
    cells = (rows.content.source, rows.content.start, rows.content.length)
    runs = zip(*(cell.tolist() for cell in cells), strict=True)
    for source, start, length in sorted(run for run in runs if run[0] > 0):
        end = last.get(source, 0)
        count += max(0, start + length - max(start, end))
        last[source] = max(end, start + length)
    return count


@pytest.mark.skipif(not AGENTS, reason="no sessions of coding agents")
def test_a_folder_of_sessions_holds_all_of_them_and_they_share_nothing() -> None:
    folder = FOLDER / Path(AGENTS[0]).parent
    rows = open_file(str(folder)).raw()
    assert rows.content is not None
    assert len(rows) == sum(EXPECTED[name]["requests"] for name in AGENTS)
    assert len(np.unique(rows.fields["session"])) == len(AGENTS)
    hits = int(prefix_hits(rows.content).sum())
    assert hits == sum(64 * EXPECTED[name]["prefix_hit_blocks"] for name in AGENTS)


@pytest.mark.parametrize(
    ("name", "ratio"),
    [("ragpulse/0_trace.jsonl.gz", 0.314), ("dynamo/pi_request_trace.jsonl.gz", 0.717)],
)
def test_a_trace_with_parts_or_hashes_shares_what_its_publisher_says(
    name: str, ratio: float
) -> None:
    if name not in EXPECTED:
        pytest.skip(f"no {name}")
    rows = open_file(str(FOLDER / name)).raw()
    assert rows.content is not None
    hits = prefix_hits(rows.content).sum() / rows.fields["prompt_tokens"].sum()
    assert round(float(hits), 3) == ratio


@pytest.mark.parametrize(
    ("name", "num_requests"),
    [("dynamo/pi_request_trace.jsonl.gz", 17), ("tracelab/round_trace.jsonl", 19)],
)
def test_every_line_of_an_event_log_is_a_request_or_counted(name: str, num_requests: int) -> None:
    if name not in EXPECTED:
        pytest.skip(f"no {name}")
    rows = open_file(str(FOLDER / name)).raw()
    ignored = sum(count for reason, count in rows.notes.items() if reason.startswith("ignored"))
    assert len(rows) == num_requests
    assert len(rows) + ignored == EXPECTED[name]["rows"]
