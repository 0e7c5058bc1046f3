"""Peers behind plain functions of NumPy arrays; each is imported only when it is called, never by the package."""

from importlib import metadata


def version(distribution):
    """Version of an installed peer, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
