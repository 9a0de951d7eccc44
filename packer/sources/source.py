"""What every kind of source can do."""

from collections.abc import Callable
from typing import Protocol

from packer.sources.files import FoundFiles


class Source(Protocol):
    """Something that holds what will be members."""

    @property
    def kind(self) -> str:
        """For the manifest: ``tree``, ``table``, ``inline``, ``archive`` or ``objects``."""

    def scan(self, check: Callable[[], None]) -> FoundFiles:
        """Look through the source once, without reading more of the data than is needed for names and sizes.

        The same content gives the same result, whatever the order in which the system lists it. Nothing is left out
        without being counted.

        Args:
            check: called now and then; raises to stop.

        Raises:
            SourceError: the source is missing or cannot be read as asked; all offenders of a kind are listed.
            DuplicateKeyError: two things of the source have the same name.
        """
