"""The sections in order, inside the budget, with sentinels between the points."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernels.calibrate import notes, output, points, provenance, sanity
from kernels.calibrate.build import build
from kernels.calibrate.grid import Section, sentinel
from kernels.calibrate.layer import sum_of_parts
from kernels.calibrate.points import FAST, SLOW, Point
from kernels.calibrate.pool import Pool
from kernels.calibrate.sanity import Row, add_note
from kernels.calibrate.timing import Timing
from kernels.calibrate.variants import needed_variants
from kernels.calibrate.works import Step, Work
from kernels.launch import Launch

SENTINEL_EVERY, CHECK_EVERY, REPEAT_EVERY = 30, 20, 20
FAILED = "failed: "  # how the note of a point that raised begins
WRONG = "output is off by "  # and that of one whose output was
RESERVE_S = 3.0  # kept for writing the files


class Timer(Protocol):
    """What `kernels.calibrate.timing.GraphTimer` does; tests put something else in its place."""

    def warm(self, sets: list[list[Step]]) -> list[Any]: ...
    def graph(self, sets: list[list[Step]], count: int) -> Timing: ...
    def eager(self, sets: list[list[Step]], count: int) -> Timing: ...


@dataclass
class Calibration:
    """A run: its rows and what calibration.json will say."""

    folder: Path
    pool: Pool
    timer: Timer
    deadline: float  # time.monotonic()
    document: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)  # names of variants that failed their check
    say: Callable[[str], None] = print
    _sample: list[tuple[Point, Row]] = field(default_factory=list)  # to be timed again
    _repeated: list[tuple[Row, Row]] = field(default_factory=list)  # a row and its second timing
    _needs: list[set[str]] = field(default_factory=list)  # of every row: the variants behind it

    def remaining(self) -> float:
        return self.deadline - time.monotonic() - RESERVE_S

    def run(self, sections: list[Section]) -> None:
        """All sections, with a sentinel at both ends; a section that cannot fit into what is left
        of the budget is skipped whole. A sample of every section's points is timed again after the
        next one. Both files are written at every sentinel and whatever ends the run."""
        try:
            self._sentinel()
            for section in sections:
                earlier, self._sample = self._sample, []
                self._account(section)
                self._repeat(earlier)
            self._repeat(self._sample)
            self._sentinel()
        finally:
            self.write()

    def _account(self, section: Section) -> None:
        """Run a section and say what became of it, also where something ends the run in it."""
        begin, before = time.monotonic(), len(self.rows)
        skipped = "ended early"
        try:
            skipped = self._section(section)
        finally:
            seconds, done = round(time.monotonic() - begin, 2), len(self.rows) - before
            self.document["sections"][section.name] = {
                "seconds": seconds,
                "points": done,
                "skipped": skipped,
            }
            self.say(f"{section.name:12s} {done:4d} points {seconds:7.1f} s  {skipped}")

    def _section(self, section: Section) -> str:
        needed = section.predicted_s(FAST)
        if needed > self.remaining():
            return f"needs at least {needed:.0f} s of the {self.remaining():.0f} s left"
        for done, point in enumerate(section.points):
            if self.remaining() < points.predicted_s(point, SLOW):
                return f"{len(section.points) - done} points, out of budget"
            row = self.measure(point)
            self.rows.append(row)
            self._needs.append(self._needed(point))
            if len(self.rows) % REPEAT_EVERY == REPEAT_EVERY // 2 and row["ok"]:
                self._sample.append((point, row))
            if len(self.rows) % SENTINEL_EVERY == 0:
                self._sentinel()
        return ""

    def _repeat(self, sample: list[tuple[Point, Row]]) -> None:
        for point, row in sample:
            if self.remaining() > points.predicted_s(point, SLOW):
                self._repeated.append((row, self.measure(point)))

    def _needed(self, point: Point) -> set[str]:
        """Names of the variants that the point's time depends on."""
        return {v.name for v in needed_variants(point, self.pool.device.num_sms)}

    def measure(self, point: Point) -> Row:
        """Time one point. A point that fails gives a row that says so and no time."""
        row = output.empty_row(point)
        try:
            needed = self._needed(point)
            if needed & self.broken:
                add_note(row, f"not timed: {min(needed & self.broken)} failed its check")
                return row
            work = build(point, self.pool)
            compiled = self.timer.warm(work.sets)
            self._describe(row, point, work, compiled)
            count = points.launches_per_graph(point, len(work.sets))
            time_it = self.timer.eager if point.eager else self.timer.graph
            output.fill_times(row, time_it(work.sets, count))
            self._judge(row, work, count)
            if WRONG in row["note"]:
                self._distrust({name for name in needed if not name.startswith("combine")})
        except Exception as problem:  # one point must not end the run
            row["ok"] = 0
            add_note(row, f"{FAILED}{type(problem).__name__}: {problem}"[:200])
        return row

    def failed(self) -> bool:
        """Whether something went wrong that the exit code must tell: a broken kernel, a wrong
        output, a failed point, sentinel or step, or not one row that can be used."""
        timed = self.rows + [again for _, again in self._repeated]
        return bool(
            self.broken
            or self.document.get("failures")
            or any(FAILED in row["note"] or WRONG in row["note"] for row in timed)
            or not any(row["ok"] for row in self.rows)
        )

    def _distrust(self, names: set[str]) -> None:
        """A variant whose output was wrong when it was timed is timed no more, and the rows that it
        has are refused."""
        self.broken |= names
        for row, needed in zip(self.rows, self._needs, strict=True):
            if needed & names:
                row["ok"] = 0
                add_note(row, f"refused: {min(needed & names)} gave a wrong output later")

    def _describe(self, row: Row, point: Point, work: Work, compiled: list[Any]) -> None:
        """Configuration columns, and the kernel's entry in calibration.json."""
        row["splits"] = work.splits or None
        for step, kernel in zip(work.sets[0], compiled, strict=True):
            if isinstance(step, Launch) and kernel is not None:
                key = f"{step.name} " + " ".join(
                    f"{k}={v}" for k, v in sorted(step.options.items())
                )
                if key not in self.document["kernels"]:
                    self.document["kernels"][key] = provenance.compiled_kernel(
                        kernel, step.options, self.document.get("compiled", [])
                    )
        step = work.sets[0][0]
        if isinstance(step, Launch) and point.kernel != "layer":
            row.update(
                num_warps=step.options.get("num_warps"), num_stages=step.options.get("num_stages")
            )
            if work.tile_bytes and compiled[0] is not None:
                row["kv_stages"] = compiled[0].metadata.shared // work.tile_bytes

    def _judge(self, row: Row, work: Work, count: int) -> None:
        """Refuse what cannot be true; check the output of sentinels and every twentieth point."""
        l2_bytes, sets = self.pool.device.l2_bytes, len(work.sets)
        if sanity.is_warm(row, l2_bytes, sets):
            row["l2"] = "warm"
        reasons = sanity.impossible(row, self.document["ceilings"], l2_bytes, sets)
        due = row["section"] == "sentinels" or len(self.rows) % CHECK_EVERY == 0
        if work.check and due:
            error = work.check((count - 1) % len(work.sets))
            if not error <= sanity.MAX_ERROR:
                reasons.append(f"{WRONG}{error:.1e}")
            else:
                add_note(row, "output checked")
        if (row["us_p90"] - row["us_p10"]) > 0.04 * row["us"]:
            add_note(row, "noisy")
        row["ok"] = int(not reasons)
        for reason in reasons:
            add_note(row, reason)
        if row["kernel"] == "layer":
            self._compose(row)

    def _compose(self, row: Row) -> None:
        parts = sum_of_parts(row, self.rows)
        if parts is not None:
            each = row["us"] / int(row["variant"].split()[0])
            add_note(
                row,
                f"a layer {each:.2f} us, its parts alone {parts:.2f} us, ratio {each / parts:.3f}",
            )

    def _sentinel(self) -> None:
        row = self.measure(sentinel())
        state = {"after_points": len(self.rows), **{k: row[k] for k in ("us", "ok", "note")}}
        self.document["sentinels"].append(state | provenance.machine_state())
        if not row["ok"]:
            self.document.setdefault("failures", {}).setdefault(
                "sentinels", f"after {len(self.rows)} points: {row['note']}"
            )
        self.write()

    def write(self) -> None:
        """Both files, as far as the run is, with the marks that sentinels and repeats give so
        far."""
        notes.mark_drift(self.rows, self.document["sentinels"])
        self.document["repeats"] = notes.repeated(self._repeated)
        self.document["sentinel_drift"] = notes.drift(self.document["sentinels"])
        output.write_points(self.folder, self.rows)
        output.write_json(self.folder / "calibration.json", self.document)

    def finish(self) -> None:
        """Notes that need all rows, then the files for the last time."""
        notes.note_trends(self.rows)
        notes.note_host_link(self.rows)
        failures = self.document.setdefault("failures", {})
        if notes.drift(self.document["sentinels"]) is None:
            failures["drift"] = "fewer than two sentinels were timed: drift is unknown"
        if not any(row["ok"] for row in self.rows):
            failures["run"] = "no row can be used: nothing was timed, or all of it was refused"
        self.document["status"] = "failed" if "run" in failures else "complete"
        self.write()
