"""Numbers with names."""

from __future__ import annotations

import math

pi = math.pi
e = math.e
euler_gamma = 0.5772156649015329
inf = math.inf
nan = math.nan
# Puts a new axis into an index.
newaxis = None
