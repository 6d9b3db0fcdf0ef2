"""Make the table of a joint workload from a list of lengths.

    python -m workloads.derive_joint sharegpt nanoflow/sharegpt.csv.gz > sharegpt_lengths.csv
    python -m workloads.derive_joint alpaca alpaca_5000_lengths.csv.gz > alpaca_lengths.csv
    python -m workloads.derive_joint wmt16 newstest2016_ende_lengths.csv.gz > wmt16_lengths.csv

The lists are CSV; workloads.sharegpt, alpaca and wmt16 say where the lengths are from,
workloads.joint how a table is made. Rows without a prompt or an output are left out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from workloads.joint import MAX_TOTAL_TOKENS
from workloads.readers import read_csv
from workloads.rows import Column
from workloads.rules import TOKENS
from workloads.trace import FloatColumn, IntColumn, TraceError


@dataclass(frozen=True)
class Recipe:
    """Which columns of a list are read, and how its table is split.

    start_tokens is added to each prompt that was counted without them.
    """

    prompt: str
    output: str
    start_tokens: int
    num_prompt_parts: int
    num_output_parts: int


RECIPES = {
    "sharegpt": Recipe("ContextTokens", "GeneratedTokens", 0, 128, 32),
    # 163 x 23 = 3,749: each request is a cell
    "wmt16": Recipe("llama_en", "llama_de", 0, 50, 20),
    "alpaca": Recipe("opt_instruction_input", "opt_output", 1, 163, 23),
}


def quantile_cells(prompt: IntColumn, output: IntColumn, recipe: Recipe) -> FloatColumn:
    """Mean prompt and output of cells of equal size, prompts ascending: shape (cells, 2)."""
    cells = []
    by_prompt = np.argsort(prompt, kind="stable")
    for part in equal_parts(by_prompt, recipe.num_prompt_parts):
        by_output = part[np.argsort(output[part], kind="stable")]
        for cell in equal_parts(by_output, recipe.num_output_parts):
            cells.append((prompt[cell].mean(), output[cell].mean()))  # noqa: PERF401
    return np.array(cells)


def equal_parts(values: IntColumn, count: int) -> list[IntColumn]:
    """Consecutive parts whose sizes differ by one at most, long and short ones evenly mixed."""
    bounds = np.rint(np.linspace(0, len(values), count + 1)).astype(np.int64)
    return np.split(values, bounds[1:-1])


def derive(name: str, path: str) -> str:
    """The table of this name as CSV text.

    Raises TraceError if the list cannot be read, or is shorter than the table.
    """
    recipe = RECIPES[name]
    columns = [Column(recipe.prompt, "prompt", TOKENS), Column(recipe.output, "output", TOKENS)]
    fields = read_csv(path, columns, "drop").fields
    prompt, output = fields["prompt"] + recipe.start_tokens, fields["output"]
    kept = prompt + output <= MAX_TOTAL_TOKENS
    num_cells = recipe.num_prompt_parts * recipe.num_output_parts
    if kept.sum() < num_cells:
        raise TraceError(f"{path}: has {kept.sum()} requests; accepted: at least {num_cells}")
    cells = quantile_cells(prompt[kept], output[kept], recipe)
    return "prompt_tokens,output_tokens\n" + "".join(f"{p:.1f},{o:.1f}\n" for p, o in cells)


def main() -> None:
    """Print the table of the list that the command line names."""
    parser = argparse.ArgumentParser(description="Print the joint table of a list of lengths.")
    parser.add_argument("name", choices=RECIPES, help="which table")
    parser.add_argument("path", help="CSV, plain or gzip")
    arguments = parser.parse_args()
    try:
        sys.stdout.write(derive(arguments.name, arguments.path))
    except TraceError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
