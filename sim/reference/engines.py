"""The page of engines: what each preset sets, which release that is, and from where."""

from __future__ import annotations

from sim.config.engine_presets import ENGINES, ENGINES_FOLDER, PARTS, Preset, read_engine
from sim.reference.markdown import code, table, text


def engines_page() -> str:
    """Every preset with its file."""
    presets = [read_engine(name, ENGINES_FOLDER) for name in ENGINES]
    rows = [
        (f"[{p.name}](#{_anchor(p.name)})", _kinds(p), text(p.keys.version), text(p.keys.source))
        for p in presets
    ]
    parts = [
        "# Engines\n",
        "What `engine: NAME` sets. The files show every knob and where its value is from; "
        "an experiment's own keys lie over them. *Compared* means that a test replays recorded "
        "runs of that release and finds the same blocks each step.\n",
        table(["engine", "allocator + scheduler", "which release", "from"], rows),
    ]
    for preset in presets:
        parts += [
            f"## {preset.name}\n",
            f"{text(preset.keys.version)}: {text(preset.keys.description)}\n",
            f"```yaml\n{(ENGINES_FOLDER / f'{preset.name}.yaml').read_text().rstrip()}\n```\n",
        ]
    return "\n".join(parts)


def _kinds(preset: Preset) -> str:
    return " + ".join(code(getattr(preset.keys, key)["kind"]) for key in PARTS)


def _anchor(name: str) -> str:
    return name.replace(".", "")
