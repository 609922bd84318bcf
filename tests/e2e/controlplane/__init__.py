"""The control plane of the end-to-end tests: real programs, built from their Go modules, without containers.

Start at `controlplane.ControlPlane`; `python -m tests.e2e.controlplane --help` builds it and runs a playground.
"""
