"""One TCP connection of the network: its socket and its outgoing buffers."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from itertools import islice

from kafka_sink.errors import AuthenticationError, TransportError, no_descriptor_error

# Linux accepts 1024 buffers per call; the send buffer is full long before.
BUFFERS_PER_CALL = 256
# Every local port is in use, or there is no memory for a socket.
_OF_THIS_HOST = (errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)


class PlainConnection:
    def __init__(self, connection_id: int, opened: socket.socket, peer: str) -> None:
        self.connection_id = connection_id
        self.socket = opened
        self.peer = peer
        self.is_connecting = True
        # Report when everything has been written.
        self.tells_written = False
        self.outgoing: deque[memoryview] = deque()

    @property
    def has_unread(self) -> bool:
        """Whether there is data that the selector cannot see. Only with TLS, which decrypts ahead."""
        return False

    def establish(self) -> int:
        """Call when the selector reports it ready: returns the events to wait for next, 0 for none. Raises
        `OSError`."""
        refused = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refused:
            raise OSError(refused, os.strerror(refused))
        return 0

    def receive_into(self, buffer: memoryview) -> int:
        """0: the peer has closed. Raises `BlockingIOError` if there is no data."""
        return self.socket.recv_into(buffer)

    def send(self) -> int:
        """Returns how many bytes of `outgoing` were sent. Raises `BlockingIOError`."""
        return self.socket.sendmsg(islice(self.outgoing, BUFFERS_PER_CALL))

    def failure_of(self, error: Exception | None) -> TransportError | AuthenticationError:
        """Converts the error that ended the connection; None: the peer closed it."""
        return failure_of(self.peer, error)


def failure_of(peer: str, error: Exception | None) -> TransportError:
    if error is None:
        return TransportError(f"{peer} closed the connection")
    if isinstance(error, OSError) and (exhausted := no_descriptor_error(peer, error)) is not None:
        return exhausted
    is_local = getattr(error, "errno", None) in _OF_THIS_HOST
    return TransportError(f"{peer}: {getattr(error, 'strerror', None) or error}", is_local=is_local)


def look_for_descriptor(what: str) -> TransportError | None:
    """Ask it where a library takes a file that it could not open for one that does not exist. None: there is one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return no_descriptor_error(what, error)
    return None
