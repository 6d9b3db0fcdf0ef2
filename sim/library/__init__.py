"""The library: what `import sim` offers. sim/__init__.py says what belongs to it."""
