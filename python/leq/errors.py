"""Exceptions by kind. All are leq.Error; each is also the built-in class that fits."""

__all__ = ["Error", "InputError", "SettingError", "OutOfMemoryError", "DeviceError", "FileError",
           "InterruptedError", "InternalError", "UsageError", "ContextFullError"]


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


# By the status codes of leq.h.
_CLASSES = {1: InputError, 2: SettingError, 3: OutOfMemoryError, 4: DeviceError, 5: FileError,
            6: InterruptedError, 7: InternalError, 8: UsageError, 9: ContextFullError}


def make(status, text, setting):
    error = _CLASSES.get(status, InternalError)(text)
    error.setting = setting
    return error
