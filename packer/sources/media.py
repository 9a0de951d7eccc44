"""Tells the extension of some bytes: by the path that came with them, or by how they begin; pure."""

import re

LOOKED_AT_BYTES = 16
"""How many bytes at the start are enough."""

_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\x93NUMPY", "npy"),
    (b"%PDF-", "pdf"),
    (b"\x1a\x45\xdf\xa3", "mkv"),
    (b"\0\0\0\x0cjP  \r\n", "jp2"),
    (b"\0\0\0\x0cJXL \r\n", "jxl"),
)
_RIFF = {b"WEBP": "webp", b"WAVE": "wav", b"AVI ": "avi"}
_BRANDS = {b"avif": "avif", b"heic": "heic", b"mif1": "heic", b"M4A ": "m4a"}
_MP3_FRAMES = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")
_SUFFIX = re.compile(r"\.([A-Za-z0-9]{1,8})\Z")


def guess_extension(head: bytes, path: str | None = None) -> str | None:
    """Guess.

    Args:
        head: first bytes, :data:`LOOKED_AT_BYTES` of them if there are so many.
        path: where the bytes came from, if known.

    Returns:
        The extension in lower case, or None when nothing tells.
    """
    suffix = _SUFFIX.search(path) if path else None
    if suffix is not None:
        return suffix[1].lower()
    for magic, extension in _MAGIC:
        if head.startswith(magic):
            return extension
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "mp4")
    return "mp3" if head.startswith(_MP3_FRAMES) else None
