"""Release notes are the changelog's own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.release_notes import notes
from webhook import __version__

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.1.0] - 2026-01-02\n\n### Added\n\n- first\n"


@pytest.mark.parametrize(("version", "text"), [("Unreleased", "- new\n"), ("0.1.0", "### Added\n\n- first\n")])
def test_the_section_of_a_version(version: str, text: str) -> None:
    assert notes(CHANGELOG, version) == text


def test_no_section() -> None:
    with pytest.raises(ValueError, match=r"no section 9; it has Unreleased, 0\.1\.0"):
        notes(CHANGELOG, "9")


def test_our_own_changelog_has_a_dated_section_for_the_version_and_one_for_what_comes() -> None:
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert "ckptguard review" in notes(changelog, __version__)
    sections = re.findall(r"(?m)^## (.+)", changelog)
    assert sections[0] == "[Unreleased]"
    for section in sections[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", section), section
