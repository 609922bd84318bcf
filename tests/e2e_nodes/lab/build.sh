#!/bin/bash
# build.sh CONTEXT TAG: builds CONTEXT/Dockerfile, base image from a local archive, nothing pulled, nothing of this
# machine written in the Dockerfile. env: STOR (storage), DRIVER (overlay|vfs), ISOLATION (chroot|oci), BASE (archive)
set -euo pipefail
. "$(dirname "$0")/env.sh"
CTX=$1; TAG=$2
STOR=${STOR:-$LAB_HOME/stor}; DRIVER=${DRIVER:-overlay}; ISO=${ISOLATION:-chroot}; BASE=${BASE:-$IMG/python.tar}
S="--root $STOR/root --runroot $STOR/run --storage-driver $DRIVER"
buildah $S images -q docker.io/library/python:3.12-slim >/dev/null 2>&1 || buildah $S pull -q docker-archive:$BASE:docker.io/library/python:3.12-slim
# the registry's certificate authority and pip's settings of this machine, seen by RUN steps only
CA=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
mkdir -p $STOR; printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\ndisable-pip-version-check = true\ntimeout = 180\n' > $STOR/pip.conf
build() { buildah $S build --isolation $ISO --network host --pull-never --layers \
  -v $CA:/etc/ssl/certs/ca-certificates.crt:ro -v $STOR/pip.conf:/etc/pip.conf:ro ${BUILD_ARGS:-} -t "$TAG" "$CTX"; }
build || { sleep 15; build; }   # once more, for an index that did not answer
