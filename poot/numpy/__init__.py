"""JAX's NumPy: arrays on the device, under the names of `jax.numpy`.

Operands are arrays, traced values, NumPy arrays and numbers; they are promoted and
broadcast as in JAX. Python numbers are weak: they take the dtype of what they meet.
"""

import sys

from numpy import (
    get_printoptions,
    index_exp,
    printoptions,
    s_,
    set_printoptions,
)

from poot.interpreters.contraction import (
    dot,
    matmul,
)
from poot.interpreters.cumulative import (
    cumprod,
    cumsum,
)
from poot.interpreters.methods import (
    Value as ndarray,
)
from poot.interpreters.methods import (
    set_array_namespace,
)
from poot.interpreters.reductions import (
    all,
    any,
    argmax,
    argmin,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    var,
)
from poot.interpreters.reductions import (
    max as amax,
)
from poot.interpreters.reductions import (
    min as amin,
)
from poot.interpreters.rounding import (
    clip,
)
from poot.interpreters.rounding import (
    round_ as around,
)
from poot.interpreters.rounding import (
    round_ as round,
)
from poot.interpreters.shaping import (
    astype,
    broadcast_to,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from poot.interpreters.shaping import (
    transpose as permute_dims,
)
from poot.interpreters.sorting import (
    argsort,
    sort,
)
from poot.lax import (
    broadcast_shapes,
)
from poot.numpy import linalg
from poot.numpy._bits import (
    bitwise_and,
    bitwise_count,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    copysign,
    frexp,
    gcd,
    invert,
    lcm,
    ldexp,
    left_shift,
    modf,
    nextafter,
    right_shift,
    signbit,
    spacing,
)
from poot.numpy._constants import (
    e,
    euler_gamma,
    inf,
    nan,
    newaxis,
    pi,
)
from poot.numpy._convolution import (
    convolve,
    correlate,
)
from poot.numpy._counts import (
    bincount,
    histogram,
    histogram_bin_edges,
)
from poot.numpy._creation import (
    arange,
    array,
    asarray,
    ascontiguousarray,
    copy,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    identity,
    indices,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    zeros,
    zeros_like,
)
from poot.numpy._cumulative import (
    cumulative_prod,
    cumulative_sum,
    nancumprod,
    nancumsum,
)
from poot.numpy._diagonal import (
    diag,
    diagflat,
    diagonal,
    trace,
)
from poot.numpy._dtypes import (
    bfloat16,
    bool_,
    can_cast,
    dtype,
    finfo,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    floating,
    generic,
    iinfo,
    inexact,
    int8,
    int16,
    int32,
    int64,
    integer,
    issubdtype,
    number,
    promote_types,
    result_type,
    signedinteger,
    uint8,
    uint16,
    uint32,
    uint64,
    unsignedinteger,
)
from poot.numpy._dtypes import (
    bool_ as bool,
)
from poot.numpy._dtypes import (
    float32 as single,
)
from poot.numpy._dtypes import (
    float64 as double,
)
from poot.numpy._einsum import (
    einsum,
    einsum_path,
)
from poot.numpy._elementwise import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    angle,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    ceil,
    conj,
    conjugate,
    cos,
    cosh,
    deg2rad,
    degrees,
    divide,
    divmod,
    exp,
    exp2,
    expm1,
    fabs,
    fix,
    float_power,
    floor,
    floor_divide,
    fmax,
    fmin,
    fmod,
    heaviside,
    hypot,
    imag,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    maximum,
    minimum,
    mod,
    multiply,
    negative,
    positive,
    pow,
    power,
    rad2deg,
    radians,
    real,
    reciprocal,
    remainder,
    rint,
    sign,
    sin,
    sinc,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
)
from poot.numpy._grids import (
    diag_indices,
    diag_indices_from,
    geomspace,
    ix_,
    logspace,
    mgrid,
    ogrid,
    ravel_multi_index,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
    unravel_index,
)
from poot.numpy._indexing import (
    argwhere,
    choose,
    compress,
    delete,
    extract,
    fill_diagonal,
    flatnonzero,
    insert,
    mask_indices,
    nonzero,
    piecewise,
    place,
    put,
    put_along_axis,
)
from poot.numpy._inspection import (
    array_repr,
    array_str,
    iscomplexobj,
    isrealobj,
    isscalar,
    iterable,
    ndim,
    shape,
    size,
)
from poot.numpy._interchange import (
    __array_api_version__,
    __array_namespace_info__,
    from_dlpack,
    isdtype,
)
from poot.numpy._joining import (
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    split,
    stack,
    unstack,
    vsplit,
    vstack,
)
from poot.numpy._logic import (
    allclose,
    array_equal,
    array_equiv,
    equal,
    greater,
    greater_equal,
    isclose,
    iscomplex,
    isfinite,
    isin,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isreal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    nan_to_num,
    not_equal,
    select,
    where,
)
from poot.numpy._moving import (
    broadcast_arrays,
    diff,
    ediff1d,
    flip,
    fliplr,
    flipud,
    matrix_transpose,
    pad,
    repeat,
    resize,
    roll,
    rollaxis,
    rot90,
    tile,
    trapezoid,
    tril,
    triu,
)
from poot.numpy._products import (
    cross,
    inner,
    kron,
    matvec,
    outer,
    polyval,
    tensordot,
    vander,
    vdot,
    vecdot,
    vecmat,
)
from poot.numpy._quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from poot.numpy._searching import (
    digitize,
    searchsorted,
)
from poot.numpy._sets import (
    intersect1d,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from poot.numpy._sorting import (
    argpartition,
    lexsort,
    partition,
)
from poot.numpy._statistics import (
    average,
    count_nonzero,
    nanargmax,
    nanargmin,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from poot.numpy._taking import (
    take,
    take_along_axis,
)

# fmt: off
__all__ = [
    "__array_api_version__", "__array_namespace_info__", "abs", "absolute", "acos",
    "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any", "append",
    "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "argmax", "argmin", "argpartition", "argsort", "argwhere", "around", "array",
    "array_equal", "array_equiv", "array_repr", "array_split", "array_str", "asarray",
    "ascontiguousarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "average", "bfloat16", "bincount",
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "block", "bool",
    "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "cbrt",
    "ceil", "choose", "clip", "column_stack", "compress", "concat", "concatenate",
    "conj", "conjugate", "convolve", "copy", "copysign", "correlate", "cos", "cosh",
    "count_nonzero", "cross", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from",
    "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double",
    "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path", "empty",
    "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims", "expm1",
    "extract", "eye", "fabs", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip",
    "fliplr", "flipud", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float16",
    "float32", "float64", "float_power", "floating", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frexp", "from_dlpack", "full", "full_like", "gcd", "generic",
    "geomspace", "get_printoptions", "greater", "greater_equal", "heaviside",
    "histogram", "histogram_bin_edges", "hsplit", "hstack", "hypot", "identity",
    "iinfo", "imag", "index_exp", "indices", "inexact", "inf", "inner", "insert",
    "int8", "int16", "int32", "int64", "integer", "intersect1d", "invert", "isclose",
    "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable",
    "ix_", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort",
    "linalg", "linspace", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean",
    "median", "meshgrid", "mgrid", "min", "minimum", "mod", "modf", "moveaxis",
    "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin", "nancumprod",
    "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod",
    "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "number", "ogrid", "ones",
    "ones_like", "outer", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "place", "polyval", "positive", "pow", "power", "printoptions", "prod",
    "promote_types", "ptp", "put", "put_along_axis", "quantile", "rad2deg", "radians",
    "ravel", "ravel_multi_index", "real", "reciprocal", "remainder", "repeat",
    "reshape", "resize", "result_type", "right_shift", "rint", "roll", "rollaxis",
    "rot90", "round", "s_", "searchsorted", "select", "set_printoptions", "setdiff1d",
    "setxor1d", "shape", "sign", "signbit", "signedinteger", "sin", "sinc", "single",
    "sinh", "size", "sort", "spacing", "split", "sqrt", "square", "squeeze", "stack",
    "std", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh",
    "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "tril_indices_from", "triu", "triu_indices", "triu_indices_from",
    "true_divide", "trunc", "uint8", "uint16", "uint32", "uint64", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unravel_index",
    "unsignedinteger", "unstack", "vander", "var", "vdot", "vecdot", "vecmat", "vsplit",
    "vstack", "where", "zeros", "zeros_like",
]
# fmt: on

set_array_namespace(sys.modules[__name__])
