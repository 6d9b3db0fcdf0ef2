"""Reference pages, made from the code and the schemas they describe: `python -m sim.reference`.

PAGES is their table, one file a page. A page is Markdown that reads on its own, without a site.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sim.reference.commands import commands_page
from sim.reference.engines import engines_page
from sim.reference.experiments import experiments_page
from sim.reference.figures import figures_page
from sim.reference.metrics import metrics_page
from sim.reference.plugins import plugins_page
from sim.reference.profiles import profiles_page
from sim.reference.traces import traces_page

MADE_BY = "<!-- Made by python -m sim.reference. Change the code that it describes. -->\n\n"

PAGES: dict[str, Callable[[], str]] = {
    "commands": commands_page,
    "experiments": experiments_page,
    "plugins": plugins_page,
    "engines": engines_page,
    "metrics": metrics_page,
    "traces": traces_page,
    "profiles": profiles_page,
    "figures": figures_page,
}


def page(name: str) -> str:
    """One page of the reference, as it should stand in the repository."""
    return MADE_BY + PAGES[name]().rstrip() + "\n"


def write(folder: Path) -> list[Path]:
    """Write every page below a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.md" for name in PAGES]
    for path in paths:
        path.write_text(page(path.stem), encoding="utf-8")
    return paths
