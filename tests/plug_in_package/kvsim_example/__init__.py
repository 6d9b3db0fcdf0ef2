"""Plug-ins for kvsim, in plain Python: one of each kind, as short as they can be."""
