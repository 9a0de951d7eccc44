"""From a finished dataset back to files: which names, where to, and are they the files they came from."""
