"""Imports a deck's modules in the judge as they lay there at the start. Reads no problem and runs no reference."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType


class KeptModules(MetaPathFinder):
    """Finds what a reference imports from beside itself, in the place of the folder's entry on ``sys.path``.

    The candidate runs as the same user and can write into that folder. With the folder on the path, whatever the judge
    imports late, packages that torch looks for among them, would be taken from there; so all texts are read before the
    candidate has started, and a file that was not there then is no module.

    Args:
        folder: Where modules of the top level lie.
    """

    def __init__(self, folder: str):
        self._folder = Path(folder)
        self._texts = {path: path.read_bytes() for path in self._folder.rglob("*.py") if path.is_file()}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - as the import system calls it, here and below
    ) -> ModuleSpec | None:
        """The kept module of this name; None for any other."""
        if path is not None and not any(Path(entry).is_relative_to(self._folder) for entry in path):
            return None
        base = self._folder.joinpath(*fullname.split("."))
        package, module = base / "__init__.py", base.with_name(f"{base.name}.py")
        for file in (package, module):
            if file in self._texts:
                within = [str(base)] if file == package else None
                loader = _Kept(file, self._texts[file])
                return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=within)
        # A folder without an __init__.py comes after any package of that name, wherever it lies.
        if any(file.is_relative_to(base) for file in self._texts) and PathFinder.find_spec(fullname, path) is None:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(base)]
            return spec
        return None


class _Kept(InspectLoader):
    """Loads one module from the text that was read."""

    def __init__(self, file: Path, text: bytes):
        self._file, self._text = file, text

    def get_source(self, fullname: str) -> str:  # noqa: ARG002
        """The text, as the import system wants it."""
        return decode_source(self._text)

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """The text, compiled."""
        return self.source_to_code(self._text, str(self._file))

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002
        """Whether the file is a package's own."""
        return self._file.name == "__init__.py"
