"""Files that a driver writes and nobody sees yet: the two ways that drivers have."""

from typing import Any, Protocol


class Upload(Protocol):
    """A file that is not yet there."""

    def write(self, piece: memoryview) -> None:
        """Append bytes."""

    def commit(self) -> None:
        """Let it be seen."""

    def discard(self) -> None:
        """Forget it."""


class MultipartUpload:
    """An upload in parts, completed or aborted. Wraps a buffered file of a driver, opened without autocommit."""

    def __init__(self, file: Any) -> None:
        if getattr(file, "autocommit", True):
            raise NotImplementedError(f"{type(file).__name__} shows a file before it is complete")
        self._file = file

    def write(self, piece: memoryview) -> None:
        """Append bytes; a full buffer is sent as a part."""
        self._file.write(piece)

    def commit(self) -> None:
        """Send the last part and complete the upload."""
        self._file.close()
        self._file.commit()

    def discard(self) -> None:
        """Abort the upload."""
        self._file.closed = True  # or the driver's destructor would send what is left in its buffer
        self._file.discard()


class StagedUpload:
    """A file under a hidden name, renamed when it is complete."""

    def __init__(self, filesystem: Any, file: Any, staged_path: str, final_path: str) -> None:
        self._fs = filesystem
        self._file = file
        self._staged_path = staged_path
        self._final_path = final_path

    def write(self, piece: memoryview) -> None:
        """Append bytes."""
        self._file.write(piece)

    def commit(self) -> None:
        """Give the file its name."""
        self._file.close()
        self._fs.mv(self._staged_path, self._final_path)

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self._fs.rm_file(self._staged_path)
