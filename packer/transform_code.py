"""Finds the function that ``--transform`` names, here and in the workers, and knows when its code has changed."""

import hashlib
import importlib
import os
import sys
from functools import lru_cache
from typing import cast

from packer.transform import TransformFunction, TransformSpec
from shards.errors import TransformError


def find_transform(text: str) -> TransformSpec:
    """Import a function to see that it is there.

    Args:
        text: ``module:function``; the current directory is searched too.

    Raises:
        ValueError: the text is none of these, or there is no such function.
    """
    module_name, colon, function_name = text.partition(":")
    if not colon or not module_name or not function_name:
        raise ValueError(f"{text!r} is no function; write module:function, such as prepare:resize")
    search_path = os.getcwd()
    try:
        _find(module_name, function_name, search_path)
    except Exception as error:
        raise ValueError(f"cannot load {text!r}: {type(error).__name__}: {error}") from error
    return TransformSpec(text, _digest_of(module_name), search_path)


@lru_cache(maxsize=8)
def load_transform(spec: TransformSpec) -> TransformFunction:
    """Import the function in a worker, once.

    Raises:
        TransformError: it cannot be imported here, or its source is not the one that was planned with.
    """
    module_name, _, function_name = spec.text.partition(":")
    try:
        function = _find(module_name, function_name, spec.search_path)
    except Exception as error:
        raise TransformError(spec.text, "", f"cannot load it: {type(error).__name__}: {error}") from error
    if _digest_of(module_name) != spec.code_digest:
        raise TransformError(spec.text, "", "its module was changed since the plan was made; run the command again")
    return function


def _find(module_name: str, function_name: str, search_path: str) -> TransformFunction:
    if search_path not in sys.path:
        sys.path.append(search_path)
    function = getattr(importlib.import_module(module_name), function_name)
    if not callable(function):
        raise TypeError(f"{function_name} is not callable")
    return cast("TransformFunction", function)


def _digest_of(module_name: str) -> str:
    """Digest of a module's source; of its name alone when it has none."""
    path = getattr(sys.modules[module_name], "__file__", None)
    hasher = hashlib.blake2b(module_name.encode(), digest_size=8)
    if path is not None:
        with open(path, "rb") as file:
            hasher.update(file.read())
    return hasher.hexdigest()
