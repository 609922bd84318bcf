"""Prints the lower bound of every dependency as a requirement: what `make lowest` installs and tests."""

import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for name, extra in project["optional-dependencies"].items():
        wanted += extra if name != "release" else []  # tools that no test runs
    for requirement in wanted:
        print(requirement.partition(",<")[0].replace(">=", "=="))
