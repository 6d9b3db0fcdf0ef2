"""What a folder of results holds: the one reader of what kvsim run and kvsim capacity --slo write.

    files.py      one file: JSON or a table; what cannot be read is one sentence
    facts.py      experiment.json
    rows.py       summary.csv and the other tables of an experiment, and what they must have
    runs.py       one run: whether it is done, and its tables
    folder.py     a whole folder, each file read when it is asked for
    verdicts.py   the record of kvsim claims

Every refusal is a ResultsError: which file, what is wrong, what is accepted. Nothing here writes,
and nothing simulates.
"""

from sim.stored.facts import Facts
from sim.stored.folder import Stored, open_folder

__all__ = ["Facts", "Stored", "open_folder"]
