"""A JSON Schema of experiment files, for editors: `kvsim check --schema`.

Made from what validates: the pydantic models of the keys, the plug-in tables, the annotations of
constructors and, for lower bounds, the constructors themselves, which are asked whether they
take -1 and 0. Descriptions are the sentences of docstrings that name a key, or of common.py.

The schema knows less than `kvsim check`: what depends on two keys, on a file, or on an upper
bound that only a constructor knows, passes. What it refuses, check refuses too, but for two
things: a value that a sweep replaces is looked at as it stands, and a model that is a folder
must be written like a path. With a sweep, keys that it may set are not required.
"""

from sim.config.schema.definitions import plugin_schemas
from sim.config.schema.experiment import experiment_schema

__all__ = ["experiment_schema", "plugin_schemas"]
