"""Models and GPUs: what they are, and how many slots of KV a model leaves on a GPU."""
