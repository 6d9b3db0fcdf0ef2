"""From the text of an experiment file to runs as plain data, every error at the key it is about."""
