"""A finished experiment as one HTML file that needs nothing else: it only reads results.

    reading.py    what a folder of results holds, and what of it is missing
    sections.py   SECTIONS, the parts of a page in their order; one function and one template each
    player/       the block-map player, a section that brings its own script
    page.py       puts them together, within MAX_BYTES
    templates/, report.css, report.js    what a page looks like

Everything from traces, experiment files and figures is text: jinja2 escapes it, and text.py makes
visible what would not be seen.
"""

from sim.report.page import NAME, Written, write_claims_report, write_report

__all__ = ["NAME", "Written", "write_claims_report", "write_report"]
