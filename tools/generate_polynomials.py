"""Writes poot/lowering/kernels/math/coefficients.py: minimax fits by Remez' exchange.

Each fit approximates `target` on an interval by a polynomial in t = variable(x), such
that the largest |weight * (polynomial - target)| is as small as its degree allows.
Run: python tools/generate_polynomials.py > poot/lowering/kernels/math/coefficients.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 60

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """What to approximate, where, and with how many coefficients (f32, f64)."""

    name: str
    comment: str
    target: Function  # of t
    low: float | str
    high: float | str
    counts: tuple[int, int]
    # The final function's error, relative or not, per error of the polynomial.
    weight: Function
    # The f64 interval where it differs from the f32 one.
    high64: float | str | None = None
    error: str = "relative error"


def remez(fit: Fit, low: mpf, high: mpf, count: int) -> tuple[list[mpf], mpf]:
    """Coefficients (lowest first) and the largest weighted error."""
    points = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / count)
        for i in range(count + 1)
    ]
    coefficients: list[mpf] = []
    error = mpf(0)
    for _ in range(12):
        coefficients, level = _solve(fit, points)
        points, error = _exchange(fit, coefficients, low, high, count)
        if error <= abs(level) * mpf("1.001"):
            break
    return coefficients, error


def _solve(fit: Fit, points: list[mpf]) -> tuple[list[mpf], mpf]:
    """The polynomial whose weighted error alternates at the points."""
    count = len(points) - 1
    matrix = mp.matrix(count + 1, count + 1)
    right = mp.matrix(count + 1, 1)
    for row, x in enumerate(points):
        for power in range(count):
            matrix[row, power] = x**power
        matrix[row, count] = (-1) ** row / fit.weight(x)
        right[row] = fit.target(x)
    solution = mp.lu_solve(matrix, right)
    return [solution[i] for i in range(count)], solution[count]


def _exchange(
    fit: Fit, coefficients: list[mpf], low: mpf, high: mpf, count: int
) -> tuple[list[mpf], mpf]:
    """The extremes of the error, one between each pair of its sign changes."""
    steps = 24 * count
    grid = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / steps)
        for i in range(steps + 1)
    ]
    backwards = coefficients[::-1]
    errors = [fit.weight(x) * (mp.polyval(backwards, x) - fit.target(x)) for x in grid]
    extremes: list[int] = []
    for i, error in enumerate(errors):
        if extremes and (error > 0) == (errors[extremes[-1]] > 0):
            if abs(error) > abs(errors[extremes[-1]]):
                extremes[-1] = i
        else:
            extremes.append(i)
    while len(extremes) > count + 1:
        ends = (extremes[0], extremes[-1])
        extremes.remove(min(ends, key=lambda i: abs(errors[i])))
    if len(extremes) < count + 1:
        raise ValueError(f"{fit.name}: the error alternates only {len(extremes)} times")
    return [grid[i] for i in extremes], max(abs(error) for error in errors)


def single(x: mpf) -> float:
    """The f32 nearest to x."""
    return float(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def _exp_tail(r: mpf) -> mpf:
    """(exp(r) - 1 - r) / r^2"""
    if abs(r) < mpf(10) ** -12:
        return mpf(1) / 2 + r / 6
    return (mp.expm1(r) - r) / r**2


def _exp2_tail(r: mpf) -> mpf:
    """(2^r - 1) / r"""
    return mp.log(2) if r == 0 else mp.expm1(r * mp.log(2)) / r


def _log_tail(f: mpf) -> mpf:
    """(log(1+f) - f + f^2/2) / f^3"""
    if abs(f) < mpf(10) ** -12:
        return mpf(1) / 3 - f / 4
    return (mp.log1p(f) - f + f * f / 2) / f**3


def _odd_tail(function: Function, cubic: mpf) -> Function:
    """Of z = x^2: (function(x) - x) / x^3, whose limit at 0 is `cubic`."""

    def tail(z: mpf) -> mpf:
        if z < mpf(10) ** -16:
            return cubic
        x = mp.sqrt(z)
        return (function(x) - x) / x**3

    return tail


def _odd_weight(function: Function) -> Function:
    """Relative error of x + x^3 p(x^2) per error of p."""

    def weight(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return z if z < mpf(10) ** -16 else x**3 / function(x)

    return weight


def _odd(
    name: str,
    function: Function,
    cubic: mpf,
    high: float | str,
    counts: tuple[int, int],
    high64: float | str | None = None,
) -> Fit:
    """Fit x + x^3 p(x^2) on [0, sqrt(high)]."""
    comment = f"{name.lower()}(x) = x + x^3 p(x^2), x^2 <= {high}"
    tail, weight = _odd_tail(function, cubic), _odd_weight(function)
    # The weight vanishes at 0, where any error is harmless: start just above.
    return Fit(name, comment, tail, 1e-9, high, counts, weight, high64)


def _cos_tail(z: mpf) -> mpf:
    """(cos(x) - 1 + x^2/2) / x^4 of z = x^2"""
    if z < mpf(10) ** -12:
        return mpf(1) / 24 - z / 720
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _log2_tail(z: mpf) -> mpf:
    """Of z = s^2: (log2((1+s)/(1-s)) / s - 2/ln2) / z less its value at 0, over z."""
    scale = 2 / mp.log(2)
    if z < mpf(10) ** -12:
        return scale * (mpf(1) / 5 + z / 7)
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s / mp.log(2) - scale - scale * z / 3) / z**2


def _erf_factor(z: mpf) -> mpf:
    """erf(x)/x - 1 of z = x^2"""
    if z == 0:
        return 2 / mp.sqrt(mp.pi) - 1
    x = mp.sqrt(z)
    return mp.erf(x) / x - 1


def _erf_weight(z: mpf) -> mpf:
    return 1 / (1 + _erf_factor(z))


ERFC_CENTRE = mpf(2)


def _scaled_erfc(t: mpf) -> mpf:
    """(x + c) exp(x^2) erfc(x) of t = (x - c) / (x + c)"""
    x = ERFC_CENTRE * (1 + t) / (1 - t)
    return (x + ERFC_CENTRE) * mp.exp(x * x) * mp.erfc(x)


def _erfc_parameter(x: float) -> float:
    return float((x - ERFC_CENTRE) / (x + ERFC_CENTRE))


def _erf_inv_factor(w: mpf) -> mpf:
    """erf_inv(x) / x of w = -log(1 - x^2)"""
    if w < mpf(10) ** -20:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    rest = mp.exp(-w) / (1 + x)  # 1 - x
    # Winitzki's estimate, and Halley's iteration.
    a, c = mpf(0.147), 2 / (mp.pi * mpf(0.147)) - w / 2
    y = mp.sqrt(w / a / (mp.sqrt(c * c + w / a) + c))
    for _ in range(4):
        step = (rest - mp.erfc(y)) * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y -= step / (1 + y * step)
    return y / x


def _erf_inv_far_factor(t: mpf) -> mpf:
    """The same of t = (w - 11) / (w + 16)"""
    return _erf_inv_factor((11 + 16 * t) / (1 - t))


def _erf_inv_parameter(w: float) -> float:
    return (w - 11) / (w + 16)


def _lgamma_factor(t: mpf) -> mpf:
    """lgamma(2 + t) / t"""
    return 1 - mp.euler if abs(t) < mpf(10) ** -20 else mp.loggamma(2 + t) / t


def _lgamma_tail(z: mpf) -> mpf:
    """Of z = 1/a^2: a (lgamma(a) - (a - 1/2) (log(a) - 1) - (log(2 pi) - 1) / 2)"""
    if z < mpf(10) ** -12:
        return mpf(1) / 12 - z / 360
    a = 1 / mp.sqrt(z)
    start = (a - mpf(1) / 2) * (mp.log(a) - 1) + (mp.log(2 * mp.pi) - 1) / 2
    return a * (mp.loggamma(a) - start)


def _digamma_tail(z: mpf) -> mpf:
    """Of z = 1/a^2: (log(a) - 1/(2a) - digamma(a)) / z"""
    if z < mpf(10) ** -8:
        return mpf(1) / 12 - z / 120 + z * z / 252
    a = 1 / mp.sqrt(z)
    return (mp.log(a) - 1 / (2 * a) - mp.digamma(a)) / z


def _sinc_pi(z: mpf) -> mpf:
    """sin(pi t) / (pi t) of z = t^2"""
    t = mp.sqrt(z)
    return mpf(1) if z == 0 else mp.sinpi(t) / (mp.pi * t)


def _cot_pi(z: mpf) -> mpf:
    """(1 / t - pi cot(pi t)) / t of z = t^2"""
    if z < mpf(10) ** -15:
        return mp.pi**2 / 3 + z * mp.pi**4 / 45
    t = mp.sqrt(z)
    return (1 - mp.pi * t * mp.cospi(t) / mp.sinpi(t)) / z


_HALF_LN2 = float(mp.log(2) / 2) * 1.001
_ROOT = float(mp.sqrt(2))
_QUARTER_PI2 = float((mp.pi / 4) ** 2) * 1.001

FITS = [
    Fit(
        "EXP",
        "exp(r) = 1 + r + r^2 p(r), |r| <= ln2/2",
        _exp_tail,
        -_HALF_LN2,
        _HALF_LN2,
        (5, 10),
        lambda r: r * r * mp.exp(-r) + mpf(10) ** -9,
    ),
    Fit(
        "EXP2",
        "exp2(r) = 1 + r p(r), |r| <= 1/2",
        _exp2_tail,
        -0.5005,
        0.5005,
        (6, 11),
        lambda r: abs(r) * mp.exp(-r * mp.log(2)) + mpf(10) ** -9,
    ),
    Fit(
        "LOG",
        "log(1+f) = f - f^2/2 + f^3 p(f), sqrt(1/2) <= 1+f < sqrt(2)",
        _log_tail,
        1 / _ROOT - 1.0001,
        _ROOT - 0.9999,
        (9, 20),
        lambda f: mpf(1) if f == 0 else abs(f**3 / mp.log1p(f)) + mpf(10) ** -9,
    ),
    Fit(
        "LOG2",
        "log2((1+s)/(1-s)) = s (2/ln2 + z (2/(3 ln2) + z p(z))), z = s^2",
        _log2_tail,
        0,
        0.02946,
        (3, 7),
        lambda z: mpf(1),
    ),
    _odd("TANH", mp.tanh, mpf(-1) / 3, 0.3026, (5, 11)),
    _odd("SINH", mp.sinh, mpf(1) / 6, 1.0001, (4, 7)),
    _odd("ASINH", mp.asinh, mpf(-1) / 6, 0.2501, (5, 13)),
    _odd("ATANH", mp.atanh, mpf(1) / 3, 0.2501, (6, 14)),
    _odd("SIN", mp.sin, mpf(-1) / 6, _QUARTER_PI2, (3, 6)),
    Fit(
        "COS",
        "cos(x) = 1 - z/2 + z^2 p(z), z = x^2, |x| <= pi/4",
        _cos_tail,
        0,
        _QUARTER_PI2,
        (3, 6),
        lambda z: z * z + mpf(10) ** -9,
    ),
    _odd("TAN", mp.tan, mpf(1) / 3, _QUARTER_PI2, (7, 15)),
    _odd("ASIN", mp.asin, mpf(1) / 6, 0.2501, (5, 12)),
    _odd("ATAN", mp.atan, mpf(-1) / 3, 1.0001, (9, 21)),
    Fit(
        "ERF",
        "erf(x) = x + x p(x^2), |x| <= 1",
        _erf_factor,
        0,
        1.0001,
        (7, 12),
        _erf_weight,
    ),
    Fit(
        "ERFC",
        "(x + 2) exp(x^2) erfc(x) = p((x - 2) / (x + 2)), x from 1/4 to 10.1 or 27.3",
        _scaled_erfc,
        _erfc_parameter(0.2499),
        _erfc_parameter(10.1),
        (11, 25),
        lambda t: 1 / _scaled_erfc(t),
        _erfc_parameter(27.3),
    ),
    Fit(
        "ERF_INV",
        "erf_inv(x) = x p(w), w = -log(1 - x^2) <= 5",
        _erf_inv_factor,
        0,
        5.0005,
        (10, 22),
        lambda w: 1 / _erf_inv_factor(w),
    ),
    Fit(
        "ERF_INV_FAR",
        "erf_inv(x) = x p((w - 11) / (w + 16)), w from 5 to 17 or 37",
        _erf_inv_far_factor,
        _erf_inv_parameter(4.9995),
        _erf_inv_parameter(17),
        (10, 26),
        lambda t: 1 / _erf_inv_far_factor(t),
        _erf_inv_parameter(37),
    ),
    Fit(
        "LGAMMA",
        "lgamma(2 + t) = t p(t), |t| <= 1/2",
        _lgamma_factor,
        -0.5001,
        0.5001,
        (9, 19),
        lambda t: 1 / _lgamma_factor(t),
    ),
    Fit(
        "LGAMMA_FAR",
        "lgamma(a) = (a - 1/2) (log(a) - 1) + (log(2 pi) - 1) / 2 + p(1/a^2) / a, "
        "a >= 5/2",
        _lgamma_tail,
        0,
        0.1602,
        (4, 14),
        lambda z: mp.sqrt(z) + mpf(10) ** -9,
        error="absolute error",
    ),
    Fit(
        "SINC_PI",
        "sin(pi t) = pi t p(t^2), |t| <= 1/2",
        _sinc_pi,
        0,
        0.2501,
        (5, 9),
        lambda z: 1 / _sinc_pi(z),
    ),
    Fit(
        "DIGAMMA",
        "digamma(2 + t) = p(t), |t| <= 1/2",
        lambda t: mp.digamma(2 + t),
        -0.5001,
        0.5001,
        (10, 20),
        lambda t: mpf(1),
        error="absolute error",
    ),
    Fit(
        "DIGAMMA_FAR",
        "digamma(a) = log(a) - 1/(2a) - p(1/a^2) / a^2, a >= 5/2",
        _digamma_tail,
        0,
        0.1602,
        (4, 14),
        lambda z: z + mpf(10) ** -9,
        error="absolute error",
    ),
    Fit(
        "COT_PI",
        "pi cot(pi t) = 1/t - t p(t^2), |t| <= 1/2",
        _cot_pi,
        0,
        0.2501,
        (8, 16),
        lambda z: mp.sqrt(z) + mpf(10) ** -9,
        error="absolute error",
    ),
]

HEADER = '''"""Coefficients of minimax polynomials, lowest power first.

Written by tools/generate_polynomials.py; edit that, not this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coefficients:
    """One polynomial in both precisions."""

    single: tuple[float, ...]
    double: tuple[float, ...]

'''


def _lines(numbers: list[float]) -> str:
    return "\n".join(f"        {number!r}," for number in numbers)


def describe(fit: Fit) -> str:
    """The source text of one fit."""
    single_fit, error32 = remez(fit, mpf(fit.low), mpf(fit.high), fit.counts[0])
    high64 = fit.high if fit.high64 is None else fit.high64
    double_fit, error64 = remez(fit, mpf(fit.low), mpf(high64), fit.counts[1])
    bits32, bits64 = (float(-mp.log(e, 2)) for e in (error32, error64))
    return (
        f"# {fit.comment}\n"
        f"# ({fit.error} 2^-{bits32:.1f}, 2^-{bits64:.1f})\n"
        f"{fit.name} = Coefficients(\n"
        f"    single=(\n{_lines([single(c) for c in single_fit])}\n    ),\n"
        f"    double=(\n{_lines([float(c) for c in double_fit])}\n    ),\n"
        ")"
    )


def main() -> None:
    print(HEADER)
    print("\n\n".join(describe(fit) for fit in FITS))


if __name__ == "__main__":
    main()
