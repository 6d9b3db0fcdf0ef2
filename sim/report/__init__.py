"""A finished experiment as one HTML file: it only reads results."""
