"""Many samples in columns, for what is computed of all at once; pure.

A plan asks a format for the size of every sample. For a million of them that takes seconds one by one, and a fraction
of a second in columns.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[Any]
Int64s: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """Keys and members of samples; no sample has an extension twice."""

    key_data: bytes | bytearray
    """UTF-8 of all keys, one behind the other."""
    key_bounds: Numbers
    """[num_samples + 1], into :attr:`key_data`."""
    first_member: Numbers
    """[num_samples + 1], into the columns of members."""
    extensions: tuple[str, ...]
    """All different."""
    codes: Numbers
    """[num_members], into :attr:`extensions`."""
    sizes: Numbers
    """[num_members], in bytes."""

    @property
    def key_bytes(self) -> Int64s:
        """[num_samples], length of each key in UTF-8."""
        return _steps(self.key_bounds)

    @property
    def member_counts(self) -> Int64s:
        """[num_samples], how many members each has."""
        return _steps(self.first_member)

    def sum_members(self, values: Numbers) -> Int64s:
        """[num_samples], sums of a number per member, or for truth values how many are true."""
        sums = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=sums[1:])
        return _steps(sums[self.first_member])


def _steps(bounds: Numbers) -> Int64s:
    ends = bounds.astype(np.int64)
    return ends[1:] - ends[:-1]
