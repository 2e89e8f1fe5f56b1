"""The main job: real sentence embeddings, against transformers' answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import embed

CASES = json.loads((Path(__file__).parent / "data/minilm-l6-v2.json").read_text())[
    "cases"
]
TOLERANCE = 1e-5
# Sentences of other lengths around the reference ones, so that rows are padded.
FILLERS = [" ".join(["word"] * (1 + n % 12)) for n in range(embed.BATCH)]


@pytest.fixture(scope="module")
def model() -> embed.Model:
    return embed.load_model()


def expected(case: dict) -> np.ndarray:
    return np.asarray(case["embedding"], np.float32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"])
def test_tokens(model: embed.Model, case: dict) -> None:
    assert model.tokenizer.encode(case["text"]).ids == case["input_ids"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"])
def test_alone(model: embed.Model, case: dict) -> None:
    ids, mask = embed.padded([case["input_ids"]], 1, len(case["input_ids"]))
    (vector,) = embed.embed_batch(model, ids, mask)
    np.testing.assert_allclose(vector, expected(case), rtol=0, atol=TOLERANCE)


def test_in_a_padded_batch(model: embed.Model) -> None:
    """One call from ids and mask to unit vectors, the references at both ends."""
    first, last = CASES
    fillers = [encoding.ids for encoding in model.tokenizer.encode_batch(FILLERS[2:])]
    tokens = [first["input_ids"], *fillers, last["input_ids"]]
    ids, mask = embed.padded(tokens, embed.BATCH, 16)
    vectors = embed.embed_batch(model, ids, mask)
    assert vectors.shape == (32, 384)
    np.testing.assert_allclose(vectors[0], expected(first), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(vectors[-1], expected(last), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_search_finds_the_meaning(model: embed.Model) -> None:
    corpus = [
        "The cat sleeps on the sofa.",
        "Interest rates rose again this year.",
        "Boil the pasta for ten minutes.",
        "The train to Berlin is late.",
    ]
    questions = ["How do I cook spaghetti?", "Is the railway on time?"]
    vectors, seconds = embed.embed_all(model, questions + corpus)
    assert len(seconds) == 2
    scores = vectors[:2] @ vectors[2:].T
    assert scores.argmax(axis=1).tolist() == [2, 3]


def test_sentences_leave_out_code_and_tables() -> None:
    text = "# Title of it all\n\nOne two three four. Five `six` seven\neight.\n\n"
    text += "```sh\nnot a sentence at all\n```\n\n| a | b | c | d | e |\n\n"
    text += "- an [item](link) of a list"
    assert embed.sentences(text) == [
        "One two three four.",
        "Five six seven eight.",
        "an item of a list",
    ]
