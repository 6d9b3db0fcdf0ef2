"""python docs/build.py [FOLDER]: build the pages as a site that needs no network (build/docs).

Pages lie in the site as they lie in the repository, so that links between README, docs and the
files they show are the same on both. Everything that a page links to comes along; a link that leads
nowhere ends the build, as a warning of zensical does.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\\)!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")
HTML = re.compile(r"""<(?:img|a|source)\b[^>]*\b(?:src|href)=["']([^"']+)""")
REFERENCE = re.compile(r"\[[^\]\n]+\]\[([^\]\n]+)\]")
CODE_BLOCK = re.compile(r"(?ms)^```.*?^```$")
CODE = re.compile(rf"{CODE_BLOCK.pattern}|`[^`\n]*`", re.M | re.S)

# A page that is not written yet is left out.
NAV: dict[str, list[str]] = {
    "kvsim": ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"],
    "Guides": [
        "docs/guides/sizing.md",
        "docs/guides/policy.md",
        "docs/guides/paper.md",
    ],
    "Subjects": [
        "docs/engines.md",
        "docs/traces.md",
        "docs/sweeps.md",
        "docs/results.md",
        "docs/compare.md",
        "docs/what_ifs.md",
        "docs/clusters.md",
        "docs/budget.md",
        "docs/capacity.md",
        "docs/prefix_caching.md",
        "docs/replicas.md",
        "docs/times.md",
        "docs/paper_figures.md",
        "docs/report.md",
        "docs/exports.md",
        "docs/library.md",
        "docs/speed.md",
        "docs/comparison.md",
    ],
    "Reference": [
        "docs/reference/commands.md",
        "docs/reference/experiments.md",
        "docs/reference/plugins.md",
        "docs/reference/engines.md",
        "docs/reference/metrics.md",
        "docs/reference/traces.md",
        "docs/reference/profiles.md",
        "docs/reference/figures.md",
        "experiments/claims/README.md",
    ],
}


def links(text: str) -> list[str]:
    """The targets of links and pictures in Markdown that lie in this repository."""
    text = CODE.sub("", text)
    targets = LINK.findall(text) + HTML.findall(text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def undefined(text: str) -> list[str]:
    """The names of links [text][name] that nothing defines: a page would show their brackets."""
    text = CODE.sub("", text)
    return [name for name in REFERENCE.findall(text) if f"\n[{name}]: " not in text]


def target_of(page: Path, link: str) -> Path:
    """The file that a link of a page leads to; the page itself for a bare anchor."""
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


def pages() -> list[Path]:
    """The pages of the navigation that there are."""
    return [ROOT / name for names in NAV.values() for name in names if (ROOT / name).exists()]


def closure(start: list[Path]) -> list[Path]:
    """The pages, and what they link to. Raises SystemExit, with all links that lead nowhere."""
    found, missing = dict.fromkeys(start), []
    for page in found.copy():
        text = page.read_text(encoding="utf-8")
        missing += [
            f"{page.relative_to(ROOT)}: [{name}] is not defined" for name in undefined(text)
        ]
        for link in links(text):
            target = target_of(page, link)
            if not target.is_file() or not target.is_relative_to(ROOT):
                missing.append(f"{page.relative_to(ROOT)}: {link}: no such file here")
            elif target.suffix == ".md" and target not in found:
                missing.append(f"{page.relative_to(ROOT)}: {link}: is not in the navigation")
            found[target] = None
    if missing:
        sys.exit("\n".join(missing))
    return list(found)


def lay_out(folder: Path) -> None:
    """Copy what the site is made from below folder, which is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    assets = sorted((ROOT / "docs" / "site").iterdir())
    for path in [*closure(pages()), *assets]:
        copy = folder / "src" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    nav = [
        {title: [name for name in names if (ROOT / name).exists()]} for title, names in NAV.items()
    ]
    config = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    inline = ", ".join(
        f"{{{json.dumps(k)} = {json.dumps(v)}}}" for one in nav for k, v in one.items()
    )
    at_nav = config.index("\n[project.theme]")
    text = f"{config[:at_nav]}nav = [{inline}]\n{config[at_nav:]}"
    (folder / "zensical.toml").write_text(text, encoding="utf-8")


def build(folder: Path) -> None:
    """Build the site in folder/site. Raises CalledProcessError for any warning."""
    lay_out(folder)
    run_builder(folder)


def run_builder(folder: Path) -> None:
    """Let zensical build what lies in folder. Raises CalledProcessError for any warning."""
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    subprocess.run([*command, "-f", str(folder / "zensical.toml")], check=True)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").resolve()
    build(place)
    print(place / "site" / "index.html")
