"""``python -m stager``: the ``stage`` program under a name that no other tool has."""

from stager.cli import main

if __name__ == "__main__":
    main()
