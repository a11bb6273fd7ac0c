"""Turns every failure of `huggingface_hub` into one clear line. Decides nothing about what happens next."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from traceparse.errors import SourceError
from traceparse.sources.hub_name import FORM

if TYPE_CHECKING:
    from traceparse.sources.hub_name import HubName


class UnseenError(SourceError):
    """Nobody can tell that the data set exists: the Hub does not show it, or does not answer."""


class UnreachableError(UnseenError):
    """The Hub did not answer, or not with a verdict on this data set."""


def missed(name: HubName, why: str) -> SourceError:
    """The error for a data set that can neither be fetched nor found in the cache.

    Args:
        name: The data set.
        why: Why it cannot be fetched.
    """
    from huggingface_hub import constants

    revision = f" --revision {name.revision}" if name.revision else ""
    cache = Path(constants.HF_HUB_CACHE) / f"datasets--{name.repo.replace('/', '--')}"
    return UnseenError(
        f"{why}, and the cache holds no complete snapshot of it (looked in {cache})",
        place=str(name),
        todo=f"fetch it where there is a network: `hf download {name.repo} --repo-type dataset{revision}`",
    )


def explained(error: Exception, name: HubName) -> SourceError:
    """What went wrong between us and the Hub, in the words of the one who asked."""
    from huggingface_hub import constants, errors

    place, endpoint = str(name), constants.ENDPOINT
    login = "log in with `hf auth login` or set HF_TOKEN"
    match error:
        case errors.LocalEntryNotFoundError():
            return missed(name, f"{endpoint} does not answer")
        case errors.RevisionNotFoundError():
            return SourceError(
                f"the data set has no revision {name.revision or constants.DEFAULT_REVISION!r}",
                place=place,
                expected="a branch, a tag or a full commit",
                todo=f"see {endpoint}/datasets/{name.repo}/commits",
            )
        case errors.GatedRepoError():
            return SourceError(
                "the data set is gated",
                place=place,
                todo=f"ask for access on {endpoint}/datasets/{name.repo}, then {login}",
            )
        case errors.RepositoryNotFoundError() if error.response.status_code == 401:
            return UnseenError(
                "no such data set on the Hub, or it is private", place=place, todo=f"check it, or {login}"
            )
        case errors.RepositoryNotFoundError():
            return UnseenError(
                "no such data set on the Hub",
                place=place,
                todo="check the spelling; a private one needs a token that may read it",
            )
        case errors.DisabledRepoError():
            return SourceError("the Hub has disabled the data set", place=place)
        case errors.HfHubHTTPError():
            return _refused(error.response.status_code, place, endpoint, login)
        case errors.HFValidationError():
            return SourceError(f"not a valid Hub id ({error})", place=place, expected=FORM)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return SourceError(
                f"no space left for the download in {constants.HF_HUB_CACHE}",
                place=place,
                todo="free space there, or set HF_HOME to a larger disk",
            )
        case OSError(errno=int() as code) if not isinstance(error, ConnectionError) and code in errno.errorcode:
            return SourceError(
                f"the download cannot be written to {constants.HF_HUB_CACHE} ({error.strerror or error})",
                place=place,
                todo="check its permissions, or set HF_HOME to another folder",
            )
        case ValueError() | TypeError() | KeyError():
            return UnreachableError(f"{endpoint} does not answer as the Hub does ({type(error).__name__})", place=place)
    return UnreachableError(f"{endpoint} cannot be reached ({type(error).__name__}: {error})", place=place)


def _refused(status: int, place: str, endpoint: str, login: str) -> SourceError:
    from huggingface_hub import get_token

    if status == 401:
        what = "the Hub does not accept the token" if get_token() else "the Hub wants to know who asks"
        return SourceError(what, place=place, todo=login)
    if status == 403:
        return SourceError("the token may not read this data set", place=place, todo=login)
    if status == 429:
        return UnreachableError(f"{endpoint} asks to slow down (HTTP 429)", place=place, todo=f"try later, or {login}")
    kind = UnreachableError if status >= 500 else SourceError
    return kind(f"{endpoint} answers HTTP {status}", place=place, todo="try again later")


def client_errors() -> tuple[type[Exception], ...]:
    """The base errors of the HTTP client under `huggingface_hub`: requests, httpx or a successor, by its version."""
    from huggingface_hub.errors import HfHubHTTPError

    own = {"builtins", "huggingface_hub"}
    bases = (base for base in HfHubHTTPError.__mro__ if base.__module__.partition(".")[0] not in own)
    return tuple(base for base in bases if issubclass(base, Exception))
