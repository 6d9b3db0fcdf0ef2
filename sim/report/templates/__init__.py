"""The HTML of pages: one template a part, filled by jinja2, which escapes what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sim.report.text import MAX_SHOWN, visible

FOLDER = Path(__file__).parent


def _finalize(value: Any) -> Any:
    """What is written is markup of ours, or text in which everything can be seen."""
    if isinstance(value, Markup):
        return value
    return visible(str(value))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)
ENVIRONMENT.globals["MAX_SHOWN"] = MAX_SHOWN


def render(template: str, **values: Any) -> Markup:
    """A template filled in."""
    # jinja2 has escaped every value
    return Markup(ENVIRONMENT.get_template(template).render(**values))
