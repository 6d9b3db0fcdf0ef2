"""The picture of a trace."""

import numpy as np
import pytest

from sim.figures.trace import draw_trace
from workloads.content import ContentBuilder
from workloads.inspection import Inspection
from workloads.summary import hits_of


def look(arrival_s, prompt, shares=False) -> Inspection:
    columns = {"prompt_tokens": np.array(prompt), "output_tokens": np.array(prompt) // 2}
    if arrival_s is not None:
        columns["arrival_ns"] = (np.array(arrival_s) * 1e9).astype(np.int64)
    content = None
    if shares:
        builder = ContentBuilder()
        for tokens in prompt:
            builder.add([(1, 0, tokens)], tokens)
        content = builder.build()
    hits = hits_of(columns, content)
    return Inspection("t.csv", "table", "", columns, content, [], {}, hits, None)


def test_arrivals_in_all_steps_add_up_to_the_requests() -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, 7000, 500))
    points = draw_trace(look(times, [9] * 500)).points
    arrivals = points[points["panel"] == "arrivals"]
    assert set(arrivals["series"]) == {"requests per minute"}
    widths = np.diff([*arrivals["x"], times[-1] - times[0]])
    assert (arrivals["y"] / 60 * widths).sum() == pytest.approx(500)
    assert len(arrivals) <= 240


def test_sharing_since_the_start_ends_at_the_share_of_the_whole_trace() -> None:
    points = draw_trace(look([0, 1, 2], [10, 20, 10], shares=True)).points
    so_far = points[points["series"] == "since the start"]["y"]
    assert so_far.iloc[-1] == pytest.approx(20 / 40)


@pytest.mark.parametrize(
    ("arrival_s", "prompt"),
    [
        ([0], [1]),
        ([0, 0, 0], [5, 5, 5]),
        ([0, 1e-6], [1, 2**31 - 1]),
        ([0, 4e9], [0, 0]),
        (None, [0, 3]),
        (None, [1] * 1000),
    ],
)
@pytest.mark.parametrize("shares", [False, True])
def test_odd_traces_are_drawn_without_a_warning(arrival_s, prompt, shares) -> None:
    drawing = draw_trace(look(arrival_s, prompt, shares))
    drawing.figure.canvas.draw()
    assert {"lengths"} <= set(drawing.points["panel"])
