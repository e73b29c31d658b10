"""Files of an exported folder, each complete or absent."""

import contextlib
import errno
import json
import os
import stat
from dataclasses import dataclass

import numpy
import safetensors

from .. import errors


class AtomicFile:
    """A file that gets its name only on commit(). Until then it has none where the file system allows that,
    otherwise the name TARGET.tmpPID, and leaving the `with` block removes it."""

    def __init__(self, target):
        self.target, self.size, self._temporary = os.fspath(target), 0, None
        _check_output(self.target)
        try:
            if not os.path.isdir("/proc/self/fd"):  # needed to name the file
                raise OSError(errno.EOPNOTSUPP, "no /proc")
            folder = os.path.dirname(self.target) or "."
            self._file = os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644), "wb")
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
                raise
            self._temporary = f"{self.target}.tmp{os.getpid()}"
            self._file = open(self._temporary, "xb")

    def append(self, data):
        self._file.write(data)
        self.size += memoryview(data).nbytes

    def align(self, boundary):
        self.append(bytes(-self.size % boundary))

    def named(self):
        """Gives the unfinished file a temporary name in its folder, for checkers; returns it."""
        self._file.flush()
        if self._temporary is None:
            name = f"{self.target}.tmp{os.getpid()}"
            if os.path.lexists(name):
                os.unlink(name)
            # With a folder's descriptor Python calls linkat(), which follows the link in /proc.
            os.link(f"/proc/self/fd/{self._file.fileno()}", name, src_dir_fd=self._file.fileno())
            self._temporary = name
        return self._temporary

    def commit(self):
        self._file.flush()
        os.fsync(self._file.fileno())
        _check_output(self.target)  # it may have changed since
        os.replace(self.named(), self.target)
        self._temporary = None

    def __enter__(self):
        return self

    def __exit__(self, _, failure, *__):
        with contextlib.suppress(OSError):  # of a full disk, which has failed before
            self._file.close()
        if self._temporary is not None:
            os.unlink(self._temporary)
        if isinstance(failure, OSError) and failure.filename is None and not isinstance(failure, errors.Error):
            raise errors.FileError(f"{self.target}: {failure.strerror or failure}") from None


def _check_output(target):
    """Raises a FileError if the name is that of something else than a regular file."""
    folder = os.path.dirname(target) or "."
    if not os.path.isdir(folder):
        raise errors.FileError(f"{target}: cannot write there: {folder} is no folder; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.FileError(f"{target}: cannot write there: {os.strerror(errno.EACCES)}; choose another folder")
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise errors.FileError(f"{target}: is a link to {os.readlink(target)}, expected the name of a new file or of "
                               "a regular one; name the file itself, or remove the link")
    if not stat.S_ISREG(mode):
        raise errors.FileError(f"{target}: is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}, expected "
                               "the name of a file to write")


class Folder:
    """An exported folder, made where it is missing, and then removed with the folders made above it if the `with`
    block fails. `last` is the file that is written last, without which the folder is incomplete: that of an earlier
    export is removed first."""

    def __init__(self, path, last):
        self.path, self.files, self.bytes = os.fspath(path), [], 0
        self._made, folder = [], os.path.abspath(self.path)  # the innermost first
        while not os.path.lexists(folder):
            self._made.append(folder)
            folder = os.path.dirname(folder)
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            reason = "it is a file" if error.errno == errno.EEXIST else error.strerror
            raise errors.FileError(f"{self.path}: cannot make this folder: {reason}") from None
        last = os.path.join(self.path, last)
        if os.path.isfile(last) and not os.path.islink(last):
            os.unlink(last)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        if failure is None or not self._made:
            return
        with contextlib.suppress(OSError):
            for name in self.files:
                os.unlink(os.path.join(self.path, name))
            for folder in self._made:
                os.rmdir(folder)

    def file(self, name):
        return AtomicFile(os.path.join(self.path, name))

    def commit(self, name, file):
        file.commit()
        self.files.append(name)
        self.bytes += file.size

    def write(self, name, text):
        with self.file(name) as file:
            file.append(text.encode(errors="replace"))
            self.commit(name, file)


@dataclass
class SafeTensor:
    """A tensor whose values are made when they are written."""

    name: str
    dtype: str  # of the format: "F32"
    shape: list
    values: object  # a function without arguments that returns an array

    @property
    def bytes(self):
        size = {"I64": 8, "F32": 4, "I32": 4, "I8": 1}[self.dtype]
        return size * int(numpy.prod(self.shape, dtype=numpy.int64))


def write_safetensors(file, tensors):
    """The package's own writer takes all tensors in memory at once; this one takes them one by one."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                               "data_offsets": [offset, offset + tensor.bytes]}
        offset += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.append(len(text).to_bytes(8, "little") + text)
    for tensor in tensors:
        file.append(numpy.ascontiguousarray(tensor.values()).reshape(-1))
    with safetensors.safe_open(file.named(), "numpy") as read:  # checks header and size
        assert len(read.keys()) == len(tensors)
