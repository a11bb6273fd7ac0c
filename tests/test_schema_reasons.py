"""The reasons of `skipped`: the documented list is what the type allows, and what the code writes."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args, get_type_hints

from conftest import ROOT

from traceparse.engine.part import _file_row
from traceparse.formats.log import Log
from traceparse.formats.records import skip_record
from traceparse.model import Skip
from traceparse.schema import SKIPPED
from traceparse.schema.reasons import REASONS, SkipReason
from traceparse.sources.member import ArchiveEntry, Listing


def test_every_reason_is_explained_in_the_table_and_by_the_command() -> None:
    assert list(REASONS) == sorted(get_args(SkipReason))
    assert SKIPPED.values == {"reason": REASONS}
    told = subprocess.run(
        [sys.executable, "-m", "traceparse", "schema", "skipped"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert [reason for reason, meaning in REASONS.items() if f"  {reason:<24} {meaning}\n" not in told] == []


def test_every_reason_is_written_somewhere() -> None:
    package = ROOT / "traceparse"
    code = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "reasons.py")
    assert [reason for reason in REASONS if f'"{reason}"' not in code] == []


def test_whatever_writes_a_reason_takes_listed_ones_only() -> None:
    """The type checker then refuses any other, so that the places that write one and the list cannot drift apart."""
    for writer in (Skip, Log.skip, skip_record, _file_row):
        assert get_type_hints(writer)["reason"] == SkipReason, writer
    assert get_type_hints(Listing)["skipped"] == list[tuple[str, SkipReason]]
    assert get_type_hints(ArchiveEntry)["refusal"] == SkipReason | None
