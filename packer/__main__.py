"""``python -m packer``: the same as the ``pack`` command."""

from packer.cli import main

if __name__ == "__main__":
    main()
