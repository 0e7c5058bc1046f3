"""What the library runs on."""

from rich.console import Console
from rich.table import Table

from ..io import versions


def show() -> None:
    """Print versions, devices, precision and the compilation cache as a table."""
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
    cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    table.add_row("compilation cache", cache or "none (set JAX_COMPILATION_CACHE_DIR to keep compiled programs)")
    Console().print(table)
