"""What a key is that many plug-ins have, where the docstring of one does not say."""

from __future__ import annotations

COMMON = {
    "block_size": "block_size is how many tokens a block holds.",
    "granularity": "granularity is what the size of a range is a multiple of, in slots.",
    "page_size_kib": "page_size_kib is the size of a page in KiB.",
    "enable_prefix_caching": "enable_prefix_caching keeps full blocks and finds them again.",
    "max_num_seqs": "max_num_seqs is how many sequences may run in an iteration.",
    "enable_chunked_prefill": "enable_chunked_prefill lets a prompt take several iterations.",
    "path": "path is the file, or the folder of a trace of several; a relative one starts at the "
    "experiment.",
    "name": "name is that of a public trace (kvsim trace fetch lists them).",
    "limit": "limit keeps so many from the beginning; all if it is left out.",
    "on_bad_row": "on_bad_row is error, or drop to count bad rows and go on.",
    "tokenizer": "tokenizer is the path of a tokenizer.json.",
    "arrivals": "arrivals is when requests come (kvsim list arrivals).",
    "turns": "turns are the follow-ups of a request (kvsim list turns).",
    "prefix": "prefix is what prompts begin with in common (kvsim list prefixes).",
    "rate": "rate is how many come in a second.",
    "tokens": "tokens is how many there are each time.",
    "seconds": "seconds is how long it takes each time.",
    "mean_s": "mean_s is the mean in seconds.",
    "cv": "cv is the standard deviation, in means.",
    "low": "low is the least there can be.",
    "high": "high is the most there can be.",
}


def said_of(key: str, entry: type | None) -> str:
    """A sentence about a key of a plug-in, empty if nothing is known of it.

    Some parameters of cost models are facts of the experiment unless they are given.
    """
    facts = getattr(entry, "from_hardware", {})
    if key in facts:
        return f"{key} is {facts[key]} of the experiment if it is left out."
    if key.endswith("_efficiency"):
        return f"{key} is the share of the datasheet's rate that is reached."
    return COMMON.get(key, "")
