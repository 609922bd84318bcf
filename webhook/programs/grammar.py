"""The grammar of bash, without what its package brings along."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Final

_PACKAGE: Final = "tree_sitter_bash"


def bash() -> Any:
    """What ``tree_sitter.Language`` takes. Raises ImportError where the package is not installed.

    Of the package the extension module alone is loaded: its ``__init__`` imports importlib.resources, a tenth of what
    ``review`` takes to start, for queries that nobody here asks for.
    """
    package = PathFinder.find_spec(_PACKAGE)
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec(f"{_PACKAGE}._binding", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.language()
    from tree_sitter_bash import language

    return language()
