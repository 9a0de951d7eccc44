"""Tells whether the page cache holds any of a file. Python offers no such call, so the C library's is used."""

import ctypes
import functools
import mmap


def is_cached(fd: int, offset: int, num_bytes: int) -> bool:
    """Whether any page of a range is in the page cache; costs no reading.

    The kernel tells it only of files that this user owns or may write, and says yes of all others, so that nobody can
    watch what others read.

    Args:
        fd: the file, open for reading.
        offset: first byte of the range.
        num_bytes: at least one, all of them in the file.
    """
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    length = offset + num_bytes - start
    try:
        # a private, writable map is what ctypes can give the address of; nothing is written, and no page is touched
        pages = mmap.mmap(fd, length, access=mmap.ACCESS_COPY, offset=start)
    except (ValueError, OSError):  # it was cut just now, or cannot be mapped: who reads it will see
        return True
    with pages:
        flags = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(pages)
        try:
            failed = _mincore()(ctypes.byref(first), ctypes.c_size_t(length), flags)
        finally:
            del first  # or the map could not be closed
    return bool(failed) or any(flag & 1 for flag in flags)


@functools.cache
def _mincore() -> "ctypes._NamedFuncPointer":
    return ctypes.CDLL(None).mincore
