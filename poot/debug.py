"""Looking into computations, as `jax.debug` does."""

from poot.interpreters.callbacks import debug_callback as callback
from poot.interpreters.callbacks import debug_print as print

__all__ = ["callback", "print"]
