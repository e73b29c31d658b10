"""Exceptions by kind. All are leq.Error; each is also the built-in class that fits."""

import importlib.metadata
import operator
import re
import shlex
import sys

__all__ = ["Error", "InputError", "SettingError", "OutOfMemoryError", "DeviceError", "FileError",
           "InterruptedError", "InternalError", "UsageError", "ContextFullError", "WrongTypeError"]


class Error(Exception):
    """What leq refuses or fails at: one line with place, expected, found and what to try.

    `setting` is the name of the setting at fault, or ""."""

    setting = ""


class InputError(Error, ValueError):
    """A file, a text, a token or a schema is not what it should be."""


class SettingError(Error, ValueError):
    """A setting is out of range, unknown, or contradicts another."""


class OutOfMemoryError(Error, MemoryError):
    """Memory cannot be had, or a plan does not fit."""


class DeviceError(Error, RuntimeError):
    """A device is not here, or fails."""


class FileError(Error, OSError):
    """The system refuses to open, read or write."""


class InterruptedError(Error):
    """Cancelled by the caller."""


class InternalError(Error, RuntimeError):
    """A mistake in leq."""


class UsageError(Error, RuntimeError):
    """Called in the wrong order, after close(), or in a forked process."""


class ContextFullError(InputError):
    """A prompt leaves no room for a reply."""


class WrongTypeError(Error, TypeError):
    """A value is not of the type that a setting or a text has."""


def about(kind, name, text):
    """An error of a setting, whose name the text begins with."""
    error = kind(f"{name}{text}")
    error.setting = name
    return error


def whole(name, value, bits=64):
    """`value` as an int of so many bits."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not -2**(bits - 1) <= number < 2**(bits - 1):
        raise about(WrongTypeError, name, f" {value!r}: expected a whole number of at most {bits} bits")
    return number


def missing(name, extra):
    """What installs the packages of an extra of leq, one of which this Python does not have."""
    try:
        wanted = importlib.metadata.requires("leq") or []
    except importlib.metadata.PackageNotFoundError:  # leq is not installed, as in its tests
        wanted = []
    packages = [one.partition(";")[0].strip() for one in wanted if re.search(f"extra == ['\"]{extra}['\"]", one)]
    return f"needs {name}: " + shlex.join([sys.executable, "-m", "pip", "install", *(packages or [name])])


# By the status codes of leq.h.
_CLASSES = {1: InputError, 2: SettingError, 3: OutOfMemoryError, 4: DeviceError, 5: FileError,
            6: InterruptedError, 7: InternalError, 8: UsageError, 9: ContextFullError}


def make(status, text, setting):
    error = _CLASSES.get(status, InternalError)(text)
    error.setting = setting
    return error
