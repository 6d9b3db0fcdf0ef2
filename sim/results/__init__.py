"""Results on disk: folders, written whole or not at all, and the schema of their tables."""
