"""What GraphTimer captures, how often it replays, and which of its times it keeps; on a made-up
GPU."""

import pytest

from kernels.calibrate import output, timing
from kernels.calibrate.grid import decode_point
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.run import Calibration
from kernels.calibrate.works import Work


class Stream:
    def __enter__(self):
        return self

    def __exit__(self, *reason):
        return False

    def synchronize(self):
        pass


class Gpu:
    """Notes what runs: while a graph is captured a step runs once, to be counted; `times` are what
    the next replays take, in ms."""

    def __init__(self):
        self.replays, self.times, self.ran, self.captured = 0, [], [], None

    def step(self, name):
        return lambda: self.ran.append(name)

    def graph(self):
        gpu = self

        class Graph:
            def capture_begin(self):
                gpu.ran.clear()

            def capture_end(self):
                gpu.captured = list(gpu.ran)

            def replay(self):
                gpu.replays += 1

        return Graph()

    def event(self, enable_timing):
        gpu = self

        class Event:
            def record(self, stream):
                pass

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return gpu.times.pop(0) if gpu.times else 1.0

        return Event()


@pytest.fixture(name="gpu")
def made_up_gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr("torch.cuda.Stream", Stream)
    monkeypatch.setattr("torch.cuda.stream", lambda stream: stream)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr("torch.cuda.CUDAGraph", gpu.graph)
    monkeypatch.setattr("torch.cuda.Event", gpu.event)
    return gpu


def test_a_graph_goes_round_all_sets_in_turn_so_that_no_slice_is_still_in_l2(gpu):
    sets = [[gpu.step(f"{i} decode"), gpu.step(f"{i} combine")] for i in range(3)]
    timing.GraphTimer().graph(sets, 5)
    order = [f"{i % 3} {step}" for i in range(5) for step in ("decode", "combine")]
    assert gpu.captured == order


def test_eager_launches_go_round_all_sets_as_well(gpu):
    timer = timing.GraphTimer()
    timer.eager([[gpu.step(i)] for i in range(3)], 4)
    warmed, rest = gpu.ran[:1], gpu.ran[1:]
    assert warmed == [0]
    assert rest == [0, 1, 2, 0] * (timing.WARMUPS + timing.REPLAYS)


def test_quiet_replays_are_timed_once_after_two_that_warm_up(gpu):
    found = timing.GraphTimer().graph([[gpu.step(0)]], 10)
    assert gpu.replays == 2 + 8
    assert (found.us, found.per_graph, found.replays) == (100.0, 10, 8)


@pytest.mark.parametrize(("again", "kept"), [([2.0] * 8, 2000.0), ([1.0, 3.0] * 4, 1050.0)])
def test_replays_that_spread_by_more_than_4_percent_are_timed_again_and_the_quieter_kept(
    gpu, again, kept
):
    gpu.times = [1.0, 1.1] * 4 + again
    found = timing.GraphTimer().graph([[gpu.step(0)]], 1)
    assert gpu.replays == 2 * (2 + 8)
    assert found.us == pytest.approx(kept)


def test_replays_that_spread_by_less_are_not_timed_again(gpu):
    gpu.times = [1.0, 1.03] * 4
    timing.GraphTimer().graph([[gpu.step(0)]], 1)
    assert gpu.replays == 2 + 8


@pytest.mark.parametrize(("launches", "last"), [(1, 0), (5, 1), (6, 2)])
def test_the_output_that_is_checked_is_that_of_the_last_launch(tmp_path, launches, last):
    document = {"ceilings": {}, "sentinels": [], "kernels": {}, "sections": {}}
    run = Calibration(tmp_path, Pool(Device("cpu"), 2**12), None, 1e12, document)
    row = output.empty_row(decode_point("decode", 16, 1, 128))
    output.fill_times(row, timing.summarise([1e6] * 8, 1))
    asked = []

    def check(index):
        asked.append(index)
        return 0.0

    run._judge(row, Work([[]] * 3, check=check), launches)
    assert asked == [last]
