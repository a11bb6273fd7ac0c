"""Patches applied to a workspace's files. The patches' own grammar is `traceparse.kernels.patch`'s."""

from __future__ import annotations

from traceparse.kernels import patch
from traceparse.kernels.workspace import Text, Workspace


def apply_envelope(workspace: Workspace, text: str, cwd: str, cut: bool) -> dict[str, str]:
    """Apply an ``apply_patch`` envelope; a cut one leaves its last file partial.

    Returns:
        New lines that the patch shows, by path.
    """
    patches = patch.parse_envelope(text)
    for index, one in enumerate(patches):
        apply_file(workspace, one, cwd, cut and index == len(patches) - 1)
    return {workspace.path(p.path, cwd): "\n".join(line for c in p.chunks for line in c.new) for p in patches}


def apply_unified(workspace: Workspace, text: str, cwd: str) -> None:
    """Apply a unified diff."""
    for one in patch.parse_unified(text):
        apply_file(workspace, one, cwd, cut=False)


def apply_file(workspace: Workspace, one: patch.FilePatch, cwd: str, cut: bool) -> None:
    """Apply one file's part of a patch; where it does not fit the known text the file is partial from then on."""
    path = workspace.path(one.path, cwd)
    if one.action == "delete":
        workspace.remove(path)
        return
    if one.action == "add":
        # "Add File" over a file that stands there puts another in its place, as a write does.
        workspace.write(path, Text(one.added, not cut), "patch" if workspace.read(path) is None else "write")
        return
    held = workspace.read(path) or workspace.originals.get(path)
    if held is None or held.text is None:
        workspace.spoil(path, "patch")
    else:
        text, fits = patch.apply(held.text, one.chunks)
        workspace.write(path, Text(text, held.whole and fits and not cut), "patch")
    if one.move_to:
        target = workspace.path(one.move_to, cwd)
        workspace.copy(path, target, "patch")
        workspace.remove(path)
