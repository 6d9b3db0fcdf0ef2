"""Executes the notebooks. As a program: all, or those named, and writes their outputs back.

python tests/support/notebooks.py [NAME …] [--to FOLDER]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TIMEOUT_S = 240  # of one cell


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new kernel, and nothing of when and where it ran.

    Raises CellExecutionError if a cell raises.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata = {}
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--to", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        notebook = executed(FOLDER / f"{name}.ipynb")
        nbformat.validate(notebook)
        nbformat.write(notebook, arguments.to / f"{name}.ipynb")


if __name__ == "__main__":
    main()
