"""Where the files of a dataset are read and written: a directory, or an object store through fsspec."""
