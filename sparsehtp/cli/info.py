"""Versions and devices that the library runs on."""

from rich.table import Table

from .. import _store
from ..io import versions
from .common import one_sentence
from .report import Console


def print_info() -> None:
    """Print versions, devices, precision and the compiled programs that are stored as a table."""
    import jax

    with jax.enable_x64(True):
        float64 = jax.numpy.zeros(()).dtype == "float64"
    table = Table(title="sparsehtp", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, version in versions().items():
        table.add_row(name, version)
    for device in jax.devices():
        table.add_row(f"device {device.id}", f"{device.platform} ({device.device_kind})")
    table.add_row("float64", "supported; `sparsehtp fit` uses it by default" if float64 else "not supported")
    table.add_row("compiled programs", _describe_store())
    Console().print(table)


def remove_cache() -> None:
    """Remove the compiled programs that are stored."""
    folder = _store.folder()
    if folder is not None:
        with one_sentence(Console(stderr=True), OSError):
            _store.remove_programs(folder)


def _describe_store() -> str:
    folder = _store.folder()
    if folder is None:
        return "off (by SPARSEHTP_CACHE)"
    sizes = [path.stat().st_size for path in _store.programs(folder)]
    return f"{folder}: {len(sizes)} programs, {sum(sizes) / 2**20:.1f} MiB of at most {_store.MAX_BYTES / 2**20:.0f}"
