"""The page of figures: what `figures: […]` can name, and what each needs."""

from __future__ import annotations

import inspect

from sim.config.replays import FIGURES as OF_REPLAYS
from sim.figures import FIGURES, draw
from sim.reference.markdown import code, module_doc, paragraphs, prose, table, text


def figures_page() -> str:
    """Every figure by name."""
    rows = []
    for name, make in FIGURES.items():
        about = text(paragraphs(module_doc(make))[0])
        kinds = "replays of policies" if name in OF_REPLAYS else "engines"
        how = paragraphs(inspect.getdoc(make))[0].partition(" Raises ")[0]
        rows.append((code(name), about, text(how), kinds))
    return "\n".join(
        [
            "# Figures\n",
            "`figures: [NAME, …]` of an experiment, drawn from result files alone when all runs "
            "are done, and again by `kvsim plot RESULTS`. Each is a PNG, an SVG and a CSV of the "
            "plotted points, in `figures/` beside `summary.csv`.\n",
            table(["name", "what it shows", "how", "of runs with"], rows),
            prose(draw.__doc__, 1) + "\n",
        ]
    )
