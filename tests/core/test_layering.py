"""Imports go one way, read from the source files without running them."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sim", "workloads", "kernels")

# a module imports nothing from a layer above its own
LAYERS = (
    ("sim.cli", "sim.library"),
    ("sim.config.experiment",),
    ("sim.engine.fleet",),
    ("sim.engine.simulation",),
    ("sim.engine.replica",),
    ("sim.schedulers",),
    ("sim.allocators", "sim.costs", "sim.engine.recorder", "sim.routers"),
    ("sim.sequence",),
    ("sim.jit",),
)
READ_RESULTS_ONLY = (
    "sim.stored",
    "sim.export",
    "sim.figures",
    "sim.report",
    "sim.compare",
    "sim.claims.statement",
    "sim.claims.expressions",
    "sim.claims.judge",
    "sim.claims.tables",
    "sim.claims.text",
    "sim.claims.verdicts",
)
RUN_A_SIMULATION = (
    "sim.engine.simulation",
    "sim.engine.fleet",
    "sim.engine.replica",
    "sim.schedulers",
    "sim.costs",
    "sim.config.experiment",
    "sim.runs.runner",
    "sim.runs.outcome",
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}


def imports_of(name: str) -> set[str]:
    """Every module that a file names in an import, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                is_package = MODULES[name].name == "__init__.py"
                parts = name.split(".")
                base = parts[: len(parts) - node.level + is_package]
                source = ".".join([*base, source] if source else base)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                found.add(submodule if submodule in MODULES else source)
    return found


IMPORTS = {name: imports_of(name) for name in MODULES}


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def layer_of(name: str) -> int | None:
    for i, layer in enumerate(LAYERS):
        if any(is_within(name, package) for package in layer):
            return i
    return None


def importers(package: str) -> set[str]:
    return {name for name in IMPORTS if any(is_within(used, package) for used in IMPORTS[name])}


def cycles() -> list[list[str]]:
    """Import cycles among our modules, each as the path that closes it."""
    found, done, path = [], set(), []

    def visit(name: str) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            path.append(name)
            for used in sorted(IMPORTS[name] & MODULES.keys()):
                visit(used)
            path.pop()
            done.add(name)

    for name in sorted(MODULES):
        visit(name)
    return found


def test_the_reader_of_imports_sees_the_known_ones() -> None:
    """Guards the other tests: an empty graph would pass them all."""
    assert {"sim.allocators.terms", "sim.jit", "sim.sequence"} <= IMPORTS["sim.allocators.blocks"]
    assert "sim.allocators.arena" in IMPORTS["sim.allocators.contiguous"]
    assert "simpy" in IMPORTS["sim.engine.replica"]
    assert len(MODULES) > 20


@pytest.mark.parametrize("name", sorted(name for name in MODULES if layer_of(name) is not None))
def test_no_module_imports_from_a_layer_above(name: str) -> None:
    own = layer_of(name)
    above = {
        used for used in IMPORTS[name] if (layer := layer_of(used)) is not None and layer < own
    }
    assert above == set()


def test_schedulers_know_allocators_only_by_their_contract() -> None:
    for name in MODULES:
        if is_within(name, "sim.schedulers"):
            used = {used for used in IMPORTS[name] if is_within(used, "sim.allocators")}
            assert used <= {"sim.allocators.base"}


def test_allocators_and_costs_do_not_know_each_other() -> None:
    for name, used in IMPORTS.items():
        if is_within(name, "sim.costs"):
            assert not any(is_within(other, "sim.allocators") for other in used)
        if is_within(name, "sim.allocators"):
            assert not any(is_within(other, "sim.costs") for other in used)


@pytest.mark.parametrize("package", ["workloads", "kernels"])
def test_workloads_and_kernels_import_nothing_of_ours(package: str) -> None:
    others = [name for name in PACKAGES if name != package]
    for name in MODULES:
        if is_within(name, package):
            ours = [used for used in IMPORTS[name] if any(is_within(used, o) for o in others)]
            assert ours == [], name


@pytest.mark.parametrize("package", ["torch", "triton", "kernels"])
def test_sim_and_workloads_never_import_what_needs_a_gpu(package: str) -> None:
    assert {name for name in importers(package) if not is_within(name, "kernels")} == set()


def test_simpy_is_known_to_the_engine_its_replica_and_fleets_of_them_alone() -> None:
    """A benchmark may time the bare library beside it."""
    assert importers("simpy") - {"sim.bench.events"} == {
        "sim.engine.simulation",
        "sim.engine.fleet",
        "sim.engine.replica",
    }


def test_there_is_no_import_cycle() -> None:
    assert cycles() == []


def test_figures_and_claims_only_read_results() -> None:
    for name in MODULES:
        if any(is_within(name, reader) for reader in READ_RESULTS_ONLY):
            used = [
                used for used in IMPORTS[name] if any(is_within(used, m) for m in RUN_A_SIMULATION)
            ]
            assert used == [], name


@pytest.mark.parametrize("name", PACKAGES)
def test_package_names_resolve_to_this_repository(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve() == (ROOT / name / "__init__.py").resolve()


def test_the_simulator_starts_without_torch_and_triton() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
        "import sim.engine.simulation, sim.allocators, sim.schedulers, sim.costs, sim.testing\n"
        "print('kernels' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "False"
