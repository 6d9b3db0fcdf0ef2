"""Names of installed plug-ins that cannot be used, each said in one sentence, and only when named.

The packages here are folders with metadata, as pip leaves them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiment_files import GOOD, errors_of, load
from sim import catalog
from sim.config.schema import experiment_schema
from workloads import installed, open_file
from workloads.trace import TraceError

Install = Callable[..., None]

ALLOCATOR = """
from sim.allocators.paged import Paged
class Mine(Paged):
    kind = "mine"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package of one module and some entry points into the environment."""

    def add(package: str, points: str, code: str = ALLOCATOR) -> None:
        folder = tmp_path / "site" / package
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0")
        (metadata / "entry_points.txt").write_text(points)
        (folder / f"{package}_plugs.py").write_text(code)
        monkeypatch.syspath_prepend(str(folder))
        installed.installed.cache_clear()

    yield add
    installed.installed.cache_clear()


def named(kind: str) -> str:
    return GOOD.replace("paged}", f"{kind}}}")


def test_a_name_that_is_built_in_means_that_and_a_warning_says_so(
    tmp_path: Path, install: Install
) -> None:
    install("kvp_clash", "[kvsim.allocators]\npaged = kvp_clash_plugs:Mine\n")
    experiment = load(tmp_path, GOOD)
    sentence = (
        "paged is the built-in one, not the plug-in of kvp_clash 1.0: that is kvp_clash_plugs"
    )
    assert [line.partition(":Mine")[0] for line in experiment.warnings] == [
        f"allocator: {sentence}"
    ]
    assert type(experiment.runs()[0].build()[3]).__module__ == "sim.allocators.paged"
    own = load(tmp_path, named('"kvp_clash_plugs:Mine"'))
    assert type(own.runs()[0].build()[3]).__module__ == "kvp_clash_plugs"
    assert own.warnings == ()
    listed = catalog.tables()["allocators"]
    assert "block_size=16" in listed["paged"]
    assert f"cannot be used by this name: {sentence}" in listed["paged (kvp_clash 1.0)"]


def test_a_name_of_two_packages_is_refused(tmp_path: Path, install: Install) -> None:
    install("kvp_one", "[kvsim.allocators]\ntwice = kvp_one_plugs:Mine\n")
    install("kvp_two", "[kvsim.allocators]\ntwice = kvp_two_plugs:Mine\n")
    assert errors_of(tmp_path, named("twice")) == [
        "x.yaml:8: allocator.kind: twice is a plug-in of kvp_one 1.0 and of kvp_two 1.0; "
        "write kvp_one_plugs:Mine or kvp_two_plugs:Mine"
    ]
    assert "twice is a plug-in of" in catalog.tables()["allocators"]["twice"]


def test_a_plug_in_that_cannot_be_imported_says_so_when_it_is_named(
    tmp_path: Path, install: Install
) -> None:
    points = "[kvsim.allocators]\nfine = kvp_ill_plugs:Mine\nill = kvp_ill_other:Mine\n"
    install("kvp_ill", points)
    assert load(tmp_path, GOOD).runs()[0].config["allocator"]["kind"] == "paged"
    assert load(tmp_path, named("fine")).runs()[0].config["allocator"]["kind"] == "fine"
    assert errors_of(tmp_path, named("ill")) == [
        "x.yaml:8: allocator.kind: ill, a plug-in of kvp_ill 1.0: kvp_ill_other:Mine cannot be "
        "imported: ModuleNotFoundError: No module named 'kvp_ill_other'; accepted: a module of the "
        "current folder, of PYTHONPATH or installed"
    ]
    listed = catalog.tables()["allocators"]
    assert listed["fine"].startswith("[kvp_ill 1.0] ")
    assert listed["ill"] == (
        "[kvp_ill 1.0] cannot be used by this name: kvp_ill_other:Mine cannot be imported: "
        "ModuleNotFoundError: No module named 'kvp_ill_other'; accepted: a module of the current "
        "folder, of PYTHONPATH or installed"
    )
    definitions = experiment_schema()["$defs"]
    assert "allocator.fine" in definitions
    assert "allocator.ill" not in definitions


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("kvp_odd_plugs:Nothing", "cannot be imported: AttributeError: module"),
        ("kvp_odd_plugs:NUMBER", "is no Allocator; accepted: a subclass of it"),
        ("kvp_odd_plugs:Half", "cannot be used: it does not define append, can_allocate"),
        ("kvp_odd_exits:X", "cannot be imported: SystemExit: 3"),
    ],
)
def test_what_is_no_allocator_is_refused(
    tmp_path: Path, install: Install, place: str, reason: str
) -> None:
    code = (
        "from sim.allocators import Allocator\nNUMBER = 3\nclass Half(Allocator): kind = 'half'\n"
    )
    install("kvp_odd", f"[kvsim.allocators]\nodd = {place}\n", code)
    (tmp_path / "site" / "kvp_odd" / "kvp_odd_exits.py").write_text("raise SystemExit(3)\n")
    (line,) = errors_of(tmp_path, named("odd"))
    expected = f"x.yaml:8: allocator.kind: odd, a plug-in of kvp_odd 1.0: {place} {reason}"
    assert line.startswith(expected), line


def test_an_unknown_name_is_told_the_installed_ones(tmp_path: Path, install: Install) -> None:
    install("kvp_near", "[kvsim.allocators]\nmy_paging = kvp_near_plugs:Mine\n")
    (line,) = errors_of(tmp_path, named("my_pagin"))
    assert "unknown kind 'my_pagin', did you mean my_paging; accepted: contiguous, " in line
    assert line.endswith("vattention, my_paging, or module:Class")


def test_a_format_that_fails_is_named_when_no_other_recognizes_a_file(
    tmp_path: Path, install: Install
) -> None:
    code = """
from workloads.azure import Azure
class Bad(Azure):
    kind = "bad"
    @classmethod
    def recognizes(cls, path, start):
        raise RuntimeError("by design")
"""
    install("kvp_bad", "[kvsim.workloads]\nbad = kvp_bad_plugs:Bad\ngone = kvp_gone:X\n", code)
    path = tmp_path / "unknown.txt"
    path.write_text("no trace\n")
    with pytest.raises(TraceError, match="bad, gone; for other column") as caught:
        open_file(str(path))
    assert str(caught.value).endswith(
        "; not asked: bad: RuntimeError: by design; not asked: kvp_gone:X cannot be imported: "
        "ModuleNotFoundError: No module named 'kvp_gone'; accepted: a module of the current "
        "folder, of PYTHONPATH or installed"
    )


def test_nothing_looks_for_packages_before_a_name_is_asked_for() -> None:
    code = (
        "import importlib.metadata as m\n"
        "real = m.entry_points\n"
        "def entry_points(**names):\n"
        "    if str(names.get('group')).startswith('kvsim'): raise SystemExit('looked')\n"
        "    return real(**names)\n"
        "m.entry_points = entry_points\n"
        "import sim, sim.config.experiment, sim.cli\n"
        "sim.cli.build_parser()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


COARSE = ALLOCATOR + "    def __init__(self) -> None: super().__init__(256)\n"


def test_a_file_that_has_changed_since_its_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old code ran, and its results had the key of the new one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "kvp_edited.py"
    file.write_text(ALLOCATOR)
    assert load(tmp_path, named('"kvp_edited:Mine"')).runs()
    file.write_text(COARSE)
    assert errors_of(tmp_path, named('"kvp_edited:Mine"')) == [
        "x.yaml:8: allocator.kind: kvp_edited:Mine has changed in its file since it was imported; "
        "accepted: importlib.reload(kvp_edited), or a new session"
    ]
    importlib.reload(sys.modules["kvp_edited"])
    assert load(tmp_path, named('"kvp_edited:Mine"')).runs()


def test_a_module_of_the_same_name_in_another_folder_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, code in (("one", ALLOCATOR), ("two", COARSE)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kvp_twin.py").write_text(code)
    with monkeypatch.context() as first:
        first.syspath_prepend(str(tmp_path / "one"))
        assert load(tmp_path, named('"kvp_twin:Mine"')).runs()
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    (line,) = errors_of(tmp_path, named('"kvp_twin:Mine"'))
    one, two = (tmp_path / folder / "kvp_twin.py" for folder in ("one", "two"))
    assert f"kvp_twin:Mine is loaded from {one}, not {two}; accepted: files of different" in line


def test_a_module_that_is_nowhere_is_told_where_it_may_be(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, named('"kvp_nowhere:Mine"'))
    assert line.endswith("accepted: a module of the current folder, of PYTHONPATH or installed")
