# Every target sets up what it needs; nothing has to be installed by hand but Python 3.11 or newer (and Go for e2e).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# More workers than the two cores of CI: many tests wait.
JOBS ?= 4
# Seconds after which a test ends its process, with the stacks of all threads.
LIMIT ?= 900
PYTEST := $(BIN)/python -m pytest -o faulthandler_timeout=$(LIMIT) -o faulthandler_exit_on_timeout=true
# Each has a control plane of its own.
E2E_JOBS ?= 3
# pytest keeps the tests that it has compiled; without them each worker takes seconds more to collect.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo check types unit coverage lowest e2e e2e-full e2e-nodes deploy-tools test golden docs bench cluster controlplane node-programs lock dist publish sbom clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -m compileall -q webhook certs
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/ckptguard review examples || test $$? -eq 1

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory -j 2 types unit

# Beside the unit tests, many of which wait.
types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)
	$(PYTEST) -n $(JOBS) --dist worksteal --ignore tests/e2e --ignore tests/e2e_nodes

# Which lines the unit tests reach; the report lies in htmlcov/.
coverage: $(STAMP)
	$(PYTEST) -n $(JOBS) --dist worksteal --ignore tests/e2e --ignore tests/e2e_nodes --cov webhook --cov certs \
	  --cov-report term-missing:skip-covered --cov-report html

# The lower bounds in pyproject.toml, tried: each dependency as old as it may be.
lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet -r .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet --no-deps --editable .
	.venv-lowest/bin/python -m pytest -n $(JOBS) --dist worksteal --ignore tests/e2e --ignore tests/e2e_nodes

# What is written by the code: docs/rules.md and README.md, and the text of each case beside it.
golden: docs
	UPDATE_GOLDEN=1 $(PYTEST) tests/rules tests/cli/test_readme.py

docs: $(STAMP)
	$(BIN)/python -m webhook.reports.catalogue docs/rules.md README.md

controlplane: $(STAMP)
	$(BIN)/python -m tests.e2e.controlplane build

# What nodes take besides.
node-programs: $(STAMP)
	$(BIN)/python -m tests.e2e.controlplane build --only kubernetes-nodes coredns
	$(BIN)/python -m tests.deploy.tools kustomize helm actionlint

e2e: controlplane
	$(PYTEST) -n $(E2E_JOBS) --durations=15 tests/e2e

test: check e2e

# Everything, also what is marked `full`: before a release, and before an issue is called resolved. It takes hours.
e2e-full: controlplane
	E2E_FULL=1 CKPTGUARD_FUZZ=100000 $(PYTEST) -n $(JOBS) --dist worksteal --ignore tests/e2e --ignore tests/e2e_nodes
	E2E_FULL=1 $(PYTEST) -n $(E2E_JOBS) --durations=15 tests/e2e
	E2E_FULL=1 E2E_KUEUE=0.19.2 $(PYTEST) tests/e2e/test_kueue.py tests/e2e/test_queued_changes.py
	E2E_FULL=1 $(BIN)/python -m tests.e2e_nodes
	E2E_FULL=1 E2E_KUEUE=0.19.2 $(PYTEST) -s tests/e2e_nodes/test_runs_kueue.py

# kustomize, Helm and promtool, built once into the cache.
deploy-tools: $(STAMP)
	$(BIN)/python -m tests.deploy.tools

# On a cluster whose nodes run pods (E2E_KUBECONFIG, else two nodes made here): an installation, a run that is stopped,
# resumed and loses its node; then the manifests, rendered and checked. With E2E_FULL=1 everything (make e2e-full).
# Without nodes it says so and skips. E2E_MINUTES: of load for each figure (1).
e2e-nodes: $(STAMP)
	$(BIN)/python -m tests.e2e_nodes

# A person's playground; RELEASE=2.1.0 takes another Trainer. It builds what it needs and no more.
cluster: $(STAMP)
	$(BIN)/python -m tests.e2e.controlplane playground $(if $(RELEASE),--release $(RELEASE))

bench: $(STAMP)
	$(BIN)/python -m bench

# The lock holds hashes and no addresses, so that any index serves it.
lock:
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --extra serve --extra cluster --extra runs --extra certs --extra rehearse --extra fix --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --extra serve --extra cluster --extra certs --constraint requirements.lock \
	  --output-file requirements-serve.lock pyproject.toml

# What a release carries, in dist/: wheel and sdist, the SBOM of the image's dependencies (CycloneDX), and its notes, which
# are the part of CHANGELOG.md for VERSION (default: the version in webhook/__init__.py, else what is unreleased).
dist: .venv-release
	rm -rf dist
	.venv-release/bin/python -m build --outdir dist .
	$(MAKE) sbom
	$(PYTHON) -m deploy.release_notes $(VERSION) > dist/RELEASE_NOTES.md

# The release on GitHub with all of dist/; only the release workflow does this. TAG: v0.1.0
publish:
	gh release create "$(TAG)" --verify-tag --title "$(TAG)" --notes-file dist/RELEASE_NOTES.md dist/*.whl dist/*.tar.gz dist/*.json

sbom: .venv-release
	mkdir -p dist
	.venv-release/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON \
	  --output-file dist/checkpoint-guard.cdx.json requirements-serve.lock

.venv-release: pyproject.toml
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet ".[release]"
	touch .venv-release

clean:
	rm -rf $(VENV) .venv-lowest .venv-release dist htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
