"""Decodes members by their extensions, with the libraries that everybody uses, imported when they are needed.

::

    from loaders.decode import Decode

    dataset = ShardDataset("/data/flowers", transform=Decode().to_tuple("jpg;png", "cls"))   # (PIL image, int)
    dataset = ShardDataset("/data/flowers", transform=Decode(jpg=my_crop))                   # {"jpg": …, "cls": …}

===============================================  ============================================  =================
extension                                        gives                                         needs
===============================================  ============================================  =================
``jpg jpeg png webp gif bmp tif tiff ppm pgm``   ``PIL.Image.Image``, loaded                   Pillow
``cls cls2 index count``                         ``int`` (ASCII decimal)
``txt text caption transcript``                  ``str`` (UTF-8)
``json``                                         what :func:`json.loads` gives
``jsonl``                                        list of what its lines give
``npy``                                          ``numpy.ndarray``                             numpy
``npz``                                          dict of name to ``numpy.ndarray``             numpy
``pt pth``                                       what ``torch.load`` gives, weights only       torch
``wav flac ogg mp3``                             (float32 (frames, channels), rate in Hz)      soundfile
===============================================  ============================================  =================

Anything else stays ``bytes``. A compound extension is looked up whole, then by what stands behind its last dot:
``seg.png`` is a picture. Nothing is ever unpickled, unless a decoder that does so is given by name:
``Decode(pkl=pickle.loads)``.
"""

import importlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from loaders.sample import KEY_FIELD, Sample
from shards.errors import DecodeError, MissingMemberError

Decoder = Callable[[bytes], Any]

ALTERNATIVES = ";"
"""Between extensions of which the first that a sample has is taken, as webdataset writes it: ``"jpg;png"``."""


class Decode:
    """A transform: a sample to a dict of its key and decoded members. Can be pickled if the decoders can.

    Attributes:
        decoders: extension to function, those that were given over the built-in ones.
    """

    def __init__(self, decoders: dict[str, Decoder | None] | None = None, /, **more: Decoder | None) -> None:
        """Choose decoders.

        Args:
            decoders: extension to function from bytes to anything; None leaves the member as bytes. For extensions that
                are no Python names, such as ``seg.png``.
            more: the same by name.
        """
        self.decoders: dict[str, Decoder | None] = {**BUILT_IN, **(decoders or {}), **more}

    def __call__(self, sample: Sample) -> dict[str, Any]:
        """Decode all members.

        Returns:
            ``{"__key__": key, extension: decoded, …}``, members in shard order.

        Raises:
            DecodeError: a member cannot be decoded.
        """
        members = sample.to_dict()
        return {
            KEY_FIELD: sample.key,
            **{extension: self.decode(sample, extension, data) for extension, data in members.items()},
        }

    def to_tuple(self, *members: str) -> "DecodeTuple":
        """Give a transform to a tuple of some members; only these are read.

        Args:
            members: extensions, or alternatives such as ``"jpg;png"``; ``"__key__"`` stands for the key.
        """
        return DecodeTuple(self, tuple(tuple(member.split(ALTERNATIVES)) for member in members))

    def decode(self, sample: Sample, extension: str, data: bytes) -> Any:
        """Decode one member.

        Raises:
            DecodeError: it cannot be decoded, or the library for it is not installed.
        """
        decoder = self.find(extension)
        if decoder is None:
            return data
        try:
            return decoder(data)
        except MissingLibraryError as error:
            raise DecodeError(sample.key, extension, sample.origin, str(error)) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise DecodeError(sample.key, extension, sample.origin, reason) from error

    def find(self, extension: str) -> Decoder | None:
        """Give the decoder for an extension, None when it stays bytes."""
        if extension in self.decoders:
            return self.decoders[extension]
        return self.decoders.get(extension.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class DecodeTuple:
    """A transform: a sample to a tuple of decoded members; see :meth:`Decode.to_tuple`."""

    decode: Decode
    members: tuple[tuple[str, ...], ...]
    """For each place of the tuple the extensions that it may have, in order of preference."""

    def __call__(self, sample: Sample) -> tuple[Any, ...]:
        """Decode the wanted members.

        Raises:
            MissingMemberError: the sample has none of the alternatives.
            DecodeError: a member cannot be decoded.
        """
        return tuple(
            sample.key if alternatives == (KEY_FIELD,) else self._take(sample, alternatives)
            for alternatives in self.members
        )

    def _take(self, sample: Sample, alternatives: Sequence[str]) -> Any:
        for extension in alternatives:
            data = sample.get(extension)
            if data is not None:
                return self.decode.decode(sample, extension, data)
        raise MissingMemberError(sample.key, " or ".join(alternatives), tuple(sample))


class MissingLibraryError(ImportError):
    """The library that decodes a kind of member is not installed."""


def decode_image(data: bytes) -> Any:
    """Decode a picture with Pillow; the whole of it, so that damage shows here."""
    image = _library("PIL.Image", "Pillow").open(io.BytesIO(data))
    image.load()
    return image


def decode_text(data: bytes) -> str:
    """Decode UTF-8."""
    return data.decode("utf-8")


def decode_integer(data: bytes) -> int:
    """Decode an integer in ASCII decimal digits."""
    return int(data.decode("ascii"))


def decode_json(data: bytes) -> Any:
    """Decode a JSON document."""
    return json.loads(data)


def decode_json_lines(data: bytes) -> list[Any]:
    """Decode a JSON document a line; empty lines count for nothing."""
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def decode_npy(data: bytes) -> Any:
    """Decode one numpy array; arrays of objects, which are pickles, are refused."""
    return _library("numpy", "numpy").load(io.BytesIO(data), allow_pickle=False)


def decode_npz(data: bytes) -> dict[str, Any]:
    """Decode a zip of numpy arrays; arrays of objects are refused."""
    with _library("numpy", "numpy").load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def decode_torch(data: bytes) -> Any:
    """Decode what ``torch.save`` wrote, with torch's reader that makes nothing but tensors and plain values."""
    return _library("torch", "torch").load(io.BytesIO(data), map_location="cpu", weights_only=True)


def decode_audio(data: bytes) -> tuple[Any, int]:
    """Decode sound: float32 of shape (frames, channels) in [-1, 1], and the sampling rate in Hz."""
    samples, rate = _library("soundfile", "soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)
    return samples, int(rate)


def _library(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name):
            raise
        raise MissingLibraryError(
            f"{package} is not installed: pip install {package}; or give a decoder of your own"
        ) from None


BUILT_IN: dict[str, Decoder | None] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm"), decode_image),
    **dict.fromkeys(("cls", "cls2", "index", "count"), decode_integer),
    **dict.fromkeys(("txt", "text", "caption", "transcript"), decode_text),
    "json": decode_json,
    "jsonl": decode_json_lines,
    "npy": decode_npy,
    "npz": decode_npz,
    **dict.fromkeys(("pt", "pth"), decode_torch),
    **dict.fromkeys(("wav", "flac", "ogg", "mp3"), decode_audio),
}
