"""Cost profiles: what is known of one GPU's times, as data with their source.

A profile is a YAML file: profiles/NAME.yaml here, or any path. It holds kernels as fitted (their
forms, tables of corrections, errors on rows kept out, ranges), and what no table had: the host's
overhead, links, all-reduce, each with where it comes from. `python -m sim.costs.fit` writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from sim.config.plugins import guess
from sim.costs.grid import Grid
from sim.costs.profile_schema import SCHEMA, check_profile
from sim.costs.variants import Variant

FOLDER = Path(__file__).parent / "profiles"
FAMILIES = ("decode", "prefill", "mixed", "linear", "small")
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ProfileError(ValueError):
    """A profile that cannot be read or is not one: one sentence."""


@dataclass(frozen=True, eq=False)  # equal only to itself, so that tables built from it are kept
class Profile:
    """One GPU's kernels and links.

    kind: measured (by kernels.calibrate), fitted (to published measurements) or analytic (from
    datasheets). source says to what, by whom; data names the tables and their SHA-256. kernels:
    family, then name, to variants. paging: factors of attention against contiguous memory, as
    tables over block_size and kv_mb, if the profile has its own. constants: numbers with a source.
    """

    name: str
    gpu: str
    sms: int
    kind: str
    source: str
    data: Mapping[str, str]
    defaults: Mapping[str, str]
    kernels: Mapping[str, Mapping[str, Variant]]
    paging: Mapping[str, Grid] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def constant(self, name: str) -> float:
        """A number by name; 0 if the profile does not say."""
        return float(self.constants.get(name, {}).get("value", 0.0))

    def engines(self) -> list[str]:
        """The first words of the decode kernels' names: what `kernel` of a cost model accepts."""
        return list(dict.fromkeys(name.split()[0] for name in self.kernels["decode"]))

    def to_data(self) -> dict[str, Any]:
        """Plain data, in the order of the file."""
        kernels = {
            family: {name: variant.to_data() for name, variant in variants.items()}
            for family, variants in self.kernels.items()
        }
        return {
            "schema": SCHEMA,
            "name": self.name,
            "gpu": self.gpu,
            "sms": self.sms,
            "kind": self.kind,
            "source": self.source,
            "data": dict(self.data),
            "notes": list(self.notes),
            "defaults": dict(self.defaults),
            "constants": {name: dict(fact) for name, fact in self.constants.items()},
            "paging": {name: grid.to_data() for name, grid in self.paging.items()},
            "kernels": kernels,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Profile:
        """The profile that to_data gave. Raises ValueError, with a sentence, if it is none."""
        check_profile(data)
        kernels = {
            family: {name: Variant.from_data(name, cell) for name, cell in variants.items()}
            for family, variants in data["kernels"].items()
        }
        return cls(
            name=str(data["name"]),
            gpu=str(data["gpu"]),
            sms=int(data["sms"]),
            kind=str(data["kind"]),
            source=str(data["source"]),
            data=data["data"],
            defaults=data["defaults"],
            kernels=kernels,
            paging={name: Grid.from_data(grid) for name, grid in data["paging"].items()},
            constants=data["constants"],
            notes=tuple(data["notes"]),
        )


def shipped() -> list[str]:
    """The names of the profiles that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def profile_path(name: str) -> Path:
    """The file of a profile: a shipped one's name, or a path. Raises ProfileError."""
    path = FOLDER / f"{name}.yaml"
    if "/" not in name and path.exists():
        return path
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    raise ProfileError(f"unknown profile {name!r}{guess(name, shipped())}, or the path of a .yaml")


def load_profile(name: str) -> Profile:
    """A profile by its name or path. Raises ProfileError."""
    path = profile_path(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    return _parsed(str(path), content)


@lru_cache(maxsize=16)
def _parsed(path: str, content: bytes) -> Profile:
    try:
        data = yaml.load(content, Loader=Loader)
        return Profile.from_data(data)
    except yaml.YAMLError as error:
        raise ProfileError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path}: is no cost profile: {error}") from None


def profile_digest(name: str) -> str:
    """A hash of a profile's file: results depend on it."""
    return hashlib.blake2b(profile_path(name).read_bytes(), digest_size=16).hexdigest()


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile as YAML."""
    text = yaml.safe_dump(profile.to_data(), sort_keys=False, allow_unicode=True, width=2000)
    path.write_text(
        f"# Written by python -m sim.costs.fit; what it says of itself is below.\n{text}"
    )
