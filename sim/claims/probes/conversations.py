"""How long whole conversations are, from lists of the lengths of their turns."""

from __future__ import annotations

import pandas as pd

from workloads.publictraces import find


def conversation_shares(trace: str, tokens: int) -> dict[str, float]:
    """Shares of conversations with several turns, and with more than so many tokens.

    The trace is a table with conv, llama_prompt and llama_output, a row a turn; all tokens of all
    turns count. Raises AbsentTraceError.
    """
    table = pd.read_csv(find(trace))
    table["tokens"] = table["llama_prompt"] + table["llama_output"]
    whole = table.groupby("conv")["tokens"].agg(["size", "sum"])
    return {
        "multi": float((whole["size"] > 1).mean()),
        "over4k": float((whole["sum"] > tokens).mean()),
    }
