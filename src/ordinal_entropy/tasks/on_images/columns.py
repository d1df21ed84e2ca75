"""One number an image."""

from torch import Tensor


def column(values: Tensor, name: str, rows: int | None = None) -> Tensor:
    """``(n,)`` out of ``(n,)`` or ``(n, 1)``, of so many rows: ``(n, 1)`` minus ``(n,)`` would be ``(n, n)``."""
    if values.dim() not in (1, 2) or values.shape[1:].numel() != 1:
        raise ValueError(f"expected {name} (n,) or (n, 1), got {tuple(values.shape)}")
    if rows is not None and len(values) != rows:
        raise ValueError(f"expected {name} with n={rows} rows, got {tuple(values.shape)}")
    return values.reshape(-1)
