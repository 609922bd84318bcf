"""Many small cases as few tests: each test costs pytest and its workers some milliseconds, a case mostly less.

Nothing is checked less: a test goes on after a case that fails and names all that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")


def together(
    cases: Iterable[Case], group: Callable[[Case], str], label: Callable[[Case], str] = str
) -> Callable[[Callable[[Case], None]], Callable[[list[Case]], None]]:
    """Makes of a check of one case a test for each group of cases; ``-k`` chooses groups by name.

    A test fails with an ``ExceptionGroup`` that holds what each failing case raised, with its label as a note.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(group(case), []).append(case)
    assert groups

    def decorate(check: Callable[[Case], None]) -> Callable[[list[Case]], None]:
        @pytest.mark.parametrize("cases", list(groups.values()), ids=list(groups))
        def test(cases: list[Case]) -> None:
            failures: list[Exception] = []
            for case in cases:
                try:
                    check(case)
                except Exception as error:
                    error.add_note(f"case: {label(case)}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases", failures)

        test.__doc__ = check.__doc__
        return test

    return decorate
