"""What was measured for a plan: the numbers that depend on machine and moment; pure values, see :mod:`packer.probe`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """The filesystem of the destination."""

    path: str
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTime:
    """What reading some files took, and what that says about all."""

    num_files: int
    """Files read."""
    seconds_a_file: float
    one_by_one_seconds: float
    """For all files of the plan, one after another."""
    num_readers: int
    """Files that a build would read at once."""

    @property
    def best_seconds(self) -> float:
        """For all files of the plan, if the storage serves all readers as quickly as one."""
        return self.one_by_one_seconds / self.num_readers
