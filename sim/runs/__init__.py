"""From one run of an experiment to its files, and what is done around all of them."""
