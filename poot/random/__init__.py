"""JAX's random numbers: the same ones for the same key, under the same names.

A key is a value; whoever draws twice from one key draws the same numbers twice. `split`
and `fold_in` make new keys. All numbers come from the rounds of Threefry-2x32, in the
order of jax.random with `jax_threefry_partitionable`.
"""

from poot.random._continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from poot.random._discrete import (
    categorical,
    geometric,
)
from poot.random._gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from poot.random._keys import (
    KeyArray,
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_impl,
    split,
    wrap_key_data,
)
from poot.random._permutations import choice, permutation
from poot.random._poisson import poisson
from poot.random._uniform import bernoulli, bits, rademacher, randint, uniform

__all__ = [
    "KeyArray",
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]
