"""Activations: functions of one element, under the names of jax.nn.

Each op computes in f32 at least and rounds to the operand's dtype. Integers and bools
become floats where the function is not closed on them.
"""

from __future__ import annotations

import math
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.core.errors import DTypeError, ShapeError
from poot.interpreters.custom import custom_jvp
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    dtype_of,
    inexact,
    promote_inexact,
)
from poot.interpreters.shaping import canonical_axis

# Constants of Klambauer and others, at which means 0 and variances 1 stay.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
# The weight of the cube in the approximation of the normal distribution by tanh.
_GELU_CUBE = 0.044715
_GELU_REACH = 8.0


def identity(x: Any) -> Value:
    """x itself."""
    return as_value(x, "nn.identity")


# --- of relu's kind ---------------------------------------------------------


@custom_jvp
def relu(x: Any) -> Value:
    """max(x, 0); its derivative at 0 is 0."""
    return jnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals: Any, tangents: Any) -> tuple[Value, Value]:
    (x,), (dx,) = primals, tangents
    return relu(x), jnp.where(x > 0, dx, 0)


@custom_jvp
def relu6(x: Any) -> Value:
    """min(max(x, 0), 6); its derivatives at 0 and 6 are 0."""
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


@relu6.defjvp
def _relu6_jvp(primals: Any, tangents: Any) -> tuple[Value, Value]:
    (x,), (dx,) = primals, tangents
    return relu6(x), jnp.where((x > 0) & (x < 6), dx, 0)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Value:
    """x where it is not negative, else `negative_slope` times x."""
    x = as_value(x, "nn.leaky_relu")
    return jnp.where(x >= 0, x, negative_slope * x)


def elu(x: Any, alpha: Any = 1.0) -> Value:
    """x where it is positive, else alpha (exp(x) - 1)."""
    x = as_value(x, "nn.elu")
    # The branch that is not taken must not overflow: its derivative would be NaN.
    below = jnp.where(x > 0, 0.0, x)
    return jnp.where(x > 0, x, jnp.multiply(alpha, jnp.expm1(below)))


def celu(x: Any, alpha: Any = 1.0) -> Value:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1)."""
    below = jnp.divide(jnp.minimum(x, 0.0), alpha)
    return jnp.add(jnp.maximum(x, 0.0), jnp.multiply(alpha, jnp.expm1(below)))


def selu(x: Any) -> Value:
    """elu with the scale and alpha that keep means 0 and variances 1."""
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


# --- of the sigmoid's kind --------------------------------------------------


def sigmoid(x: Any) -> Value:
    """1 / (1 + exp(-x)). DTypeError if x is no float."""
    if not dtype_of(x, "nn.sigmoid").dtype.is_float:
        raise DTypeError(
            f"nn.sigmoid: takes floats, given {dtype_of(x).dtype}; cast with .astype(…)"
        )
    found: Value = lax.logistic(x)
    return found


def log_sigmoid(x: Any) -> Value:
    """log(sigmoid(x)), which neither overflows nor loses small values."""
    return -softplus(-as_value(x, "nn.log_sigmoid"))


def silu(x: Any) -> Value:
    """x sigmoid(x), also called swish. DTypeError if x is no float."""
    return as_value(x, "nn.silu") * sigmoid(x)


swish = silu


def glu(x: Any, axis: int = -1) -> Value:
    """The first half along `axis` times the sigmoid of the second.

    x: [..., 2 n, ...]; the result has n there. ShapeError if the size is odd.
    """
    x = as_value(x, "nn.glu")
    axis = canonical_axis(axis, x.ndim, "nn.glu")
    size = x.shape[axis]
    if size % 2:
        raise ShapeError(
            f"nn.glu: axis {axis} of {x.shape} has size {size}, takes an even one"
        )
    values, gates = jnp.split(x, 2, axis)
    return values * sigmoid(gates)


def hard_sigmoid(x: Any) -> Value:
    """relu6(x + 3) / 6."""
    clipped: Value = relu6(as_value(x, "nn.hard_sigmoid") + 3.0)
    return clipped / 6.0


def hard_silu(x: Any) -> Value:
    """x relu6(x + 3) / 6, also called hard swish."""
    return as_value(x, "nn.hard_silu") * hard_sigmoid(x)


hard_swish = hard_silu


def sparse_sigmoid(x: Any) -> Value:
    """(x + 1) / 2, at least 0 and at most 1: the derivative of sparse_plus."""
    return jnp.clip(as_value(x, "nn.sparse_sigmoid") + 1.0, 0.0, 2.0) * 0.5


# --- of the hyperbolic tangent's kind ---------------------------------------

tanh = jnp.tanh


def hard_tanh(x: Any) -> Value:
    """x, at least -1 and at most 1."""
    x = as_value(x, "nn.hard_tanh")
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


def soft_sign(x: Any) -> Value:
    """x / (|x| + 1)."""
    return as_value(x, "nn.soft_sign") / (jnp.abs(x) + 1)


# --- of softplus' kind ------------------------------------------------------


def softplus(x: Any) -> Value:
    """log(1 + exp(x)), without overflow on the way."""
    promoted = promote_inexact("nn.softplus", as_value(x, "nn.softplus"), 0)
    found: Value = _softplus(promoted.operands[0].with_weak(promoted.weak))
    return found


@custom_jvp
def _softplus(x: Value) -> Value:
    wide = cast_to(x, x.type.dtype.compute)
    below = jnp.log1p(jnp.exp(-jnp.abs(wide)))
    return cast_to(jnp.maximum(wide, 0) + below, x.type.dtype)


@_softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> tuple[Value, Value]:
    (x,), (dx,) = primals, tangents
    return _softplus(x), dx * sigmoid(x)


def sparse_plus(x: Any) -> Value:
    """0 up to -1, (x + 1)**2 / 4 up to 1, then x."""
    x = as_value(x, "nn.sparse_plus")
    middle = (x + 1.0) ** 2 / 4
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, middle))


def squareplus(x: Any, b: Any = 4) -> Value:
    """(x + sqrt(x**2 + b)) / 2."""
    root = jnp.sqrt(jnp.add(jnp.square(x), b))
    return (as_value(x, "nn.squareplus") + root) / 2


def mish(x: Any) -> Value:
    """x tanh(softplus(x))."""
    return as_value(x, "nn.mish") * jnp.tanh(softplus(x))


# --- others -----------------------------------------------------------------


def gelu(x: Any, approximate: bool = True) -> Value:
    """x times the normal distribution's share below x.

    Its distribution function is approximated by a tanh, or taken from erfc.
    """
    value = as_value(x, "nn.gelu").with_weak(False)
    value = cast_to(value, inexact(value.type.dtype))
    if not approximate:
        return value * 0.5 * lax.erfc(-value * math.sqrt(0.5))
    # Beyond, the tanh is 1; a cube that overflows would make its derivative NaN.
    near = lax.clamp(-_GELU_REACH, value, _GELU_REACH)
    inner = (near + near**3 * _GELU_CUBE) * math.sqrt(2 / math.pi)
    return value * ((jnp.tanh(inner) + 1.0) * 0.5)


def log1mexp(x: Any) -> Value:
    """log(1 - exp(-x)) of x above 0, precise next to 0 and for large x."""
    value = as_value(x, "nn.log1mexp")
    if value.type.dtype.is_bool:
        raise DTypeError("nn.log1mexp: takes numbers, given bools; cast with .astype")
    found: Value = _log1mexp(cast_to(value, inexact(value.type.dtype)))
    return found


@custom_jvp
def _log1mexp(x: Value) -> Value:
    by_difference = jnp.log(-jnp.expm1(-x))
    return jnp.where(x < math.log(2), by_difference, jnp.log1p(-jnp.exp(-x)))


@_log1mexp.defjvp
def _log1mexp_jvp(primals: Any, tangents: Any) -> tuple[Value, Value]:
    (x,), (dx,) = primals, tangents
    return _log1mexp(x), dx / jnp.expm1(x)
