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


def congestion_control() -> str:
    """One sentence for people: what this machine sends bulk data with."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if prefer_bbr(probe):
            return "This machine sends with bbr: a long line stays full at a loss of 1 %."
        usual = _name(probe)
    return (
        f"This machine sends with {usual}, the kernel does not offer bbr: a long line with loss will be slow. As root, "
        "`modprobe tcp_bbr` and add bbr to the sysctl net.ipv4.tcp_allowed_congestion_control."
    )


def _name(connection: socket.socket) -> str:
    try:
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    except (OSError, AttributeError):
        return "the system's default"
    return name.partition(b"\0")[0].decode("ascii", "replace")
