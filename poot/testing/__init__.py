"""Tools that prove results: the same graph on the device, by the oracle and in JAX."""

from poot.testing._check_grads import check_grads
from poot.testing._crosscheck import crosscheck
from poot.testing._distance import ordinals, ulps
from poot.testing._report import Comparison, CrossCheck, Largest, Output

__all__ = [
    "Comparison",
    "CrossCheck",
    "Largest",
    "Output",
    "check_grads",
    "crosscheck",
    "ordinals",
    "ulps",
]
