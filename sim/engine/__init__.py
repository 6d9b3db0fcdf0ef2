"""The SimPy model: arrivals, replicas and their clock, and what is recorded of them."""
