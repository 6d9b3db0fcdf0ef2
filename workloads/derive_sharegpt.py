"""Make the quantile table of the sharegpt workload from a list of lengths.

    python -m workloads.derive_sharegpt nanoflow/sharegpt.csv.gz > sharegpt_lengths.csv

The list is CSV with the columns ContextTokens and GeneratedTokens; workloads.sharegpt says where
it is published and how the table is made.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from workloads.formats import open_file
from workloads.sharegpt import MAX_TOTAL_TOKENS
from workloads.trace import FloatColumn, IntColumn, TraceError

NUM_PROMPT_PARTS = 128
NUM_OUTPUT_PARTS = 32


def quantile_cells(prompt: IntColumn, output: IntColumn) -> FloatColumn:
    """Mean prompt and output of cells of equal size, prompts ascending: shape (cells, 2)."""
    cells = []
    by_prompt = np.argsort(prompt, kind="stable")
    for part in equal_parts(by_prompt, NUM_PROMPT_PARTS):
        by_output = part[np.argsort(output[part], kind="stable")]
        for cell in equal_parts(by_output, NUM_OUTPUT_PARTS):
            cells.append((prompt[cell].mean(), output[cell].mean()))  # noqa: PERF401
    return np.array(cells)


def equal_parts(values: IntColumn, count: int) -> list[IntColumn]:
    """Consecutive parts whose sizes differ by one at most, long and short ones evenly mixed."""
    bounds = np.rint(np.linspace(0, len(values), count + 1)).astype(np.int64)
    return np.split(values, bounds[1:-1])


def derive(path: str) -> str:
    """The table as CSV text.

    Raises TraceError if the list cannot be read.
    """
    rows = open_file(path).lengths()
    prompt, output = rows.fields["prompt_tokens"], rows.fields["output_tokens"]
    kept = prompt + output <= MAX_TOTAL_TOKENS
    cells = quantile_cells(prompt[kept], output[kept])
    return "prompt_tokens,output_tokens\n" + "".join(f"{p:.1f},{o:.1f}\n" for p, o in cells)


def main() -> None:
    """Print the table of the list that the command line names."""
    parser = argparse.ArgumentParser(description="Print the quantile table of a list of lengths.")
    parser.add_argument("path", help="CSV with ContextTokens and GeneratedTokens, plain or gzip")
    path = parser.parse_args().path
    try:
        sys.stdout.write(derive(path))
    except TraceError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
