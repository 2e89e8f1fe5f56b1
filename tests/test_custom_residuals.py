"""What rules of custom_vjp get back of what they kept."""

from __future__ import annotations

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax


@poot.custom_vjp
def scaled(x, factor):
    return x * factor


def forward(x, factor):
    return scaled(x, factor), (x, factor)


def backward(kept, ct):
    x, factor = kept
    # Methods and operators, as of any value.
    return ct * (factor / 2 + factor.reshape(())), jnp.sum(ct * x)


scaled.defvjp(forward, backward)


@pytest.mark.parametrize("wrap", [lambda f: f, poot.jit], ids=["eager", "jit"])
def test_a_kept_literal_is_a_value(wrap) -> None:
    """Numbers that became literals in a graph are values again in the rule."""

    def through_a_scan(x):
        def body(carry, _):
            return scaled(carry, jnp.float32(2)), None

        return jnp.sum(lax.scan(body, x, None, length=3)[0])

    x = np.arange(4, dtype=np.float32)
    slopes = wrap(poot.grad(through_a_scan))(x)
    np.testing.assert_array_equal(slopes, np.full(4, 27, np.float32))
    each = wrap(poot.vmap(poot.grad(lambda x: scaled(x, jnp.float32(2)))))(x)
    np.testing.assert_array_equal(each, np.full(4, 3, np.float32))
