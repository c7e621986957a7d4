"""TCP congestion control: bbr keeps a long line full where loss makes cubic crawl.

It acts at the sender: at the coordinator for downloads, at the site for uploads. Any user may choose it per socket where the
kernel lists it in net.ipv4.tcp_allowed_congestion_control; root may choose any that is there.
"""

from __future__ import annotations

import socket

BBR = "bbr"


def prefer_bbr(connection: socket.socket) -> bool:
    """Makes the socket, or those that a listening one accepts, send with bbr; returns whether the kernel let it."""
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, BBR.encode())
    except (OSError, AttributeError):  # AttributeError: not Linux
        return False
    return True
