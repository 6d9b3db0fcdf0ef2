"""A small file of every trace format: what it is called, and what is in it.

The contract of formats (tests/workloads/test_format_contract.py) runs over all of them. OPTIONS
holds the parameters, beside its path, that a format needs to read its example.
"""

import json
from typing import Any

from canonical_files import everything, packed

from workloads import FORMATS
from workloads.tracefile import TraceFile


def lines(*rows: object) -> str:
    """One JSON value a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def agent(t: float, prompt: int, output: int, ids: list[int]) -> dict[str, object]:
    """A request of kv-cache-tester's."""
    return {"t": t, "type": "n", "model": "m", "in": prompt, "out": output, "hash_ids": ids}


def pulse(time: str, prompt: int, parts: list[list[int]], session: str) -> dict[str, object]:
    """A request of RAGPulse's; parts are lists of ids in the order of the published keys."""
    keys = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
    ids = dict(zip(keys, parts, strict=True))
    row: dict[str, object] = {"timestamp": time, "input_length": prompt, "output_length": 9}
    return {**row, "hash_ids": ids, "session_id": session}


def ended(received_ms: int, prompt: int, hashes: list[int], session: str) -> dict[str, object]:
    """A request_end event of dynamo's."""
    replay = {"trace_block_size": 16, "input_length": prompt, "input_sequence_hashes": hashes}
    request = {"output_tokens": 3, "request_received_ms": received_ms, "replay": replay}
    event = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
    agent_context = {"session_id": session}
    return {"timestamp": 1, "event": {**event, "agent_context": agent_context, "request": request}}


def round_of(session: str, index: int, prompt: int, cached: int | None) -> dict[str, object]:
    """A round of TraceLab's, a minute after the one before."""
    events = [
        {"event_type": "tool_result", "timestamp": f"2026-06-01T05:{index:02}:20.151Z"},
        {"event_type": "text", "timestamp": f"2026-06-01T05:{index:02}:29Z"},
    ]
    row: dict[str, object] = {"provider": "claude", "session_id": session, "round_index": index}
    tokens = {"input_tokens_total": prompt, "prefix_tokens": cached, "output_tokens": 7}
    return {**row, **tokens, "timing_events": events}


SESSION = {
    "id": "trace_1",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        agent(0.0, 140, 5, [1, 2]),
        {"t": 1.5, "type": "subagent", "requests": [agent(0.0, 64, 6, [3])]},
        agent(20.25, 150, 7, [1, 2]),
    ],
}
BENCH = {
    "date": "20260101-000000",
    "request_rate": 1.0,
    "total_input_tokens": 12,
    "request_throughput": 0.9,
    "input_lens": [5, 7],
    "output_lens": [3, 4],
    "start_times": [100.25, 101.5],
}

EXAMPLE_FILES = {
    "canonical": ("conv.parquet", packed(everything())),
    "apex": (
        "lmsys_05.jsonl",
        '{"ContextTokens": 156, "GeneratedTokens": 67, "SynthesizedBody": "", "RequestID": "a1", '
        '"TotalTokens": 223, "StartTimeOffset": 197890289}\n'
        '{"ContextTokens": 115, "GeneratedTokens": 390, "SynthesizedBody": "", "RequestID": "a2", '
        '"TotalTokens": 505, "StartTimeOffset": 1500203480}\n',
    ),
    "azure": (
        "conv.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
    ),
    "bailian": (
        "chat.jsonl",
        '{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 20, '
        '"output_length": 14, "type": "text", "turn": 1, "hash_ids": [0, 1]}\n'
        '{"chat_id": 1, "parent_chat_id": 0, "timestamp": 2.5, "input_length": 50, '
        '"output_length": 7, "type": "text", "turn": 2, "hash_ids": [0, 2, 3, 4]}\n',
    ),
    "burstgpt": (
        "BurstGPT_3.csv",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n"
        "19440110.0,,0.5,GPT-4,30,4,34,API log\n"
        "19440115.5,3f2a,1.25,ChatGPT,5,6,11,Conversation log\n",
    ),
    "columns": ("log.csv", "when,asked,answered\n1000,3,4\n2500,5,6\n"),
    "lmcache_agent": (
        "agent.jsonl",
        '{"timestamp": 0, "input_length": 20, "output_length": 29, "hash_ids": [0, 1], '
        '"session_id": "s000"}\n'
        '{"timestamp": 1585, "input_length": 40, "output_length": 5, "hash_ids": [0, 2, 3], '
        '"session_id": "s001"}\n',
    ),
    "dynamo": (
        "request_trace.jsonl",
        lines(ended(1000, 40, [2**64 - 1, 2**64 - 2, 7], "a"), ended(1500, 16, [2**64 - 1], "b")),
    ),
    "kv_cache_tester": ("trace_0001.json", json.dumps(SESSION) + "\n"),
    "llmservingsim": (
        "sharegpt.jsonl",
        '{"input_toks": 3, "output_toks": 2, "arrival_time_ns": 46926808, '
        '"input_tok_ids": [7, 8, 9], "output_tok_ids": [30, 31]}\n'
        '{"input_toks": 4, "output_toks": 1, "arrival_time_ns": 347938951, '
        '"input_tok_ids": [7, 8, 50, 4], "output_tok_ids": [5]}\n',
    ),
    "llmservingsim_measured": (
        "requests.jsonl",
        '{"request_id": "bench-0", "input_toks": 23, "output_toks": 5, '
        '"arrival_time": 1787267980.25, "queued_ts": 27536.5, "scheduled_ts": 27536.5, '
        '"first_token_ts": 27537.25, "last_token_ts": 27554.25}\n'
        '{"request_id": "bench-1", "input_toks": 10, "output_toks": 7, '
        '"arrival_time": 1787267980.75, "queued_ts": 27537.0, "scheduled_ts": 27537.0, '
        '"first_token_ts": 27537.25, "last_token_ts": 27562.25}\n',
    ),
    "mooncake": (
        "conversation_trace.jsonl",
        '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 2, 3]}\n',
    ),
    "nanoflow": (
        "sharegpt.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,42,285\nXXX,19,82\n",
    ),
    "openai_log": (
        "log.jsonl",
        lines(
            {"created": 1_700_000_000, "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
            {"created": 1_700_000_004, "usage": {"prompt_tokens": 8, "completion_tokens": 1}},
        ),
    ),
    "ragpulse": (
        "0_trace.jsonl",
        lines(
            pulse("82", 48, [[10], [20, 21], [], [], [40]], "s"),
            pulse("93", 38, [[10], [20], [], [50], [41]], "t"),
        ),
    ),
    "table": (
        "requests.csv",
        "arrival_s,prompt_tokens,output_tokens\n0,3,4\n1.5,5,6\n",
    ),
    "tracelab": ("rounds.jsonl", lines(round_of("a", 0, 90, 60), round_of("a", 1, 120, 80))),
    "vllm_bench": ("bench.json", json.dumps(BENCH) + "\n"),
    "vidur": (
        "splitwise.csv",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n",
    ),
}
WORDS = ("?", "What", "is", "a", "block", "Sixteen", "tokens", "And", "page", "No", "Hello")
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(WORDS)},
        "unk_token": "?",
    },
}
CONVERSATIONS = [
    {
        "id": "a_0",
        "conversations": [
            {"from": "human", "value": "What is a block"},
            {"from": "gpt", "value": "Sixteen tokens"},
            {"from": "human", "value": "And a page"},
            {"from": "gpt", "value": "No"},
        ],
    },
    {
        "id": "b_0",
        "conversations": [
            {"from": "human", "value": "What is a page"},
            {"from": "gpt", "value": "a block"},
        ],
    },
]
# what examples need beside them
COMPANION_FILES = {
    "1_sys_prompt.jsonl": lines({"sys_prompt_id": 10, "token_length": 16}),
    "2_passages.jsonl": lines(
        {"passage_id": 20, "token_length": 6}, {"passage_id": 21, "token_length": 10}
    ),
    "3_history.jsonl": lines({"history_id": 30, "token_length": 11}),
    "4_user_input.jsonl": lines(
        {"user_input_id": 40, "token_length": 9}, {"user_input_id": 41, "token_length": 5}
    ),
    "5_web_search.jsonl": lines({"web_search_id": 50, "token_length": 4}),
    "conversations.json": json.dumps(CONVERSATIONS),
    "tokenizer.json": json.dumps(TOKENIZER),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "columns": {
        "prompt_column": "asked",
        "output_column": "answered",
        "arrival_column": "when",
        "arrival_unit": "ms",
    },
}


def open_as(name: str, path: str, **options: object) -> TraceFile:
    """A file of a format, with what its example needs."""
    return FORMATS[name](path, **{**OPTIONS.get(name, {}), **options})
