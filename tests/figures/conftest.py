"""Results to draw, in the style of ours."""

from collections.abc import Iterator

import matplotlib.style
import pytest

from figure_data import (
    for_figure,
    make_results,
    sweep_rows,
)
from sim.figures import Results
from sim.figures.style import STYLE


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with matplotlib.style.context(STYLE, after_reset=True):
        yield


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Results:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return make_results(for_figure(parameters.get("name", ""), sweep_rows()))
