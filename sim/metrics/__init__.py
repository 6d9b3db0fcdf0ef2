"""From a finished run to its numbers: facts, the summary row, several seeds as one row."""
