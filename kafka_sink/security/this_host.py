"""Which host names mean this host: what is sent there crosses no network."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Addresses only."""
    import ipaddress  # most processes ask about no address

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_this_host(host: str) -> bool:
    """Nothing is resolved."""
    return host.lower() == "localhost" or is_loopback(host)


def is_url_of_this_host(url: str) -> bool:
    try:
        return is_this_host(urlsplit(url).hostname or "")
    except ValueError:
        return False
