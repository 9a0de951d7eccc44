"""``python -m loaders``: the same as the ``load`` command."""

from loaders.cli import main

if __name__ == "__main__":
    main()
