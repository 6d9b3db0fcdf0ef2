"""Hit rates as a table for a terminal."""

from __future__ import annotations

import pandas as pd


def policy_lines(table: pd.DataFrame) -> list[str]:
    """Hit rates in percent: a line a policy, a column a capacity."""
    first = table.iloc[0]
    capacities = list(dict.fromkeys(table["capacity_tokens"]))
    lines = [
        f"{first['trace']}: {first['num_requests']:,} requests, {first['num_prompt_tokens']:,} "
        f"prompt tokens, blocks of {first['block_size']}; hit rate in %",
        f"  {'capacity':<15}" + "".join(f"{_short(tokens):>8}" for tokens in capacities),
    ]
    for policy in dict.fromkeys(table["policy"]):
        rates = table.loc[table["policy"] == policy, "hit_rate"]
        lines.append(f"  {policy:<15}" + "".join(f"{100 * rate:>8.2f}" for rate in rates))
    return lines


def _short(tokens: int) -> str:
    """A number of tokens in at most seven characters."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if tokens >= 10 * size:
            return f"{tokens / size:.4g}{unit}"
    return str(tokens)
