"""The steps that a history keeps."""

import equinox as eqx


class Record(eqx.Module):
    """Keep one `Info` row every `every` steps (the last one of each block); pass `record=None` for no history.

    Args:
        every: steps per row, at least 1.

    Raises:
        ValueError: if every is below 1.
    """

    every: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every: must be at least 1, got {self.every}.")
