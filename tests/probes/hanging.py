"""A file system that never answers: a FUSE mount whose daemon does not read."""

import ctypes
import os
from contextlib import contextmanager

_libc = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


@contextmanager
def mounted(path, answers=False):
    """`path` as such a mount; raises OSError where mounting is not allowed.

    Once the descriptor is closed, whoever waits gets ENOTCONN: a mount whose daemon died.
    """
    handle = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0".encode()
    if _libc.mount(b"ossfs", os.fsencode(path), b"fuse.ossfs", 0, options):
        number = ctypes.get_errno()
        os.close(handle)
        raise OSError(number, os.strerror(number))
    closed = False
    try:
        if answers:
            os.close(handle)
            closed = True
        yield path
    finally:
        if not closed:
            os.close(handle)
        _libc.umount2(os.fsencode(path), MNT_DETACH)
