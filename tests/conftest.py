"""Settings of all tests."""

from hypothesis import settings

# the first call of compiled code may compile it: no example has a time limit of its own
settings.register_profile("kvsim", deadline=None)
settings.load_profile("kvsim")
