"""How large a file may be, by the memory there is."""

import os
from pathlib import Path

NEEDED = 4  # times its arrays that a file takes while it is read and its rows are fitted


def default_limit(needed: int = NEEDED) -> int:
    """Bytes that a file may take where nobody names a limit: so many that this multiple of them is free."""
    return available() // needed


def available() -> int:
    """Bytes of free memory, within what a container and the process are allowed."""
    found = []
    for path, place in (("/proc/meminfo", "MemAvailable:"), ("/sys/fs/cgroup/memory.max", "")):  # on Linux
        try:
            text = Path(path).read_text()
            found.append(int(text[text.index(place) + len(place) :].split()[0]) * (1024 if place else 1))
        except (OSError, ValueError):
            continue
    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        found += [] if allowed == resource.RLIM_INFINITY else [allowed]
        found = found or [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (ImportError, OSError, ValueError):  # not on Windows
        pass
    return min(found, default=2**33)


def too_large(path: Path, size: int, limit: int) -> ValueError:
    """The error for a file that would take more memory than allowed."""
    return ValueError(
        f"path: {path.name} would take {size / 2**20:.0f} MiB, more than the limit of {limit / 2**20:.0f} MiB; "
        "raise max_bytes if the file is to be trusted and there is memory for it, or split it."
    )
