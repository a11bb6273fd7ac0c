"""An exception of a candidate's as data for the judge. Judges nothing."""

from __future__ import annotations

import traceback
from pathlib import Path

from traceparse.rerun.child.guise import frames_made
from traceparse.rerun.child.wire import Message

_type = type  # a candidate can replace the built-in


def failure(error: BaseException) -> Message:
    """Type, message and trace; frames of this project, and those in the name of a script that never ran, are left out."""
    told = traceback.TracebackException.from_exception(error)
    _strip(told)
    text = "".join(told.format())
    return {"error": {"type": _type(error).__name__, "message": str(error)[-4000:], "trace": text[-6000:]}}


def _strip(told: traceback.TracebackException | None) -> None:
    """Leave such frames out here and in what this came from."""
    if told is None:
        return
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not _is_ours(frame.filename)])
    for cause in (told.__cause__, told.__context__, *(told.exceptions or ())):
        _strip(cause)


def _is_ours(file: str) -> bool:
    return file in frames_made or Path(file).parent == Path(__file__).parent
