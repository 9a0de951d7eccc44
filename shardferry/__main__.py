"""``python -m shardferry``: the same as the ``shardferry`` command."""

from shardferry.cli import main

if __name__ == "__main__":
    main()
