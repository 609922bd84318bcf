# Checkpoint Guard in one image: the webhook, the keeper of its certificates, and the command line.
#
#   docker build --build-arg VERSION=$(git describe --tags) --build-arg REVISION=$(git rev-parse HEAD) \
#     --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) .
#
# The base is named by an argument: releases give it with its digest (BASE=docker.io/library/python:3.12-slim@sha256:...,
# by docker buildx imagetools inspect python:3.12-slim). None is written here: it would be that of one day and one
# registry, and a build behind a mirror, or without a registry as in the tests, could not have it.
# Nothing of it but Python and the libraries that Python asks for is in the result: no shell, no package manager.
# There is no HEALTHCHECK: Kubernetes asks /healthz and /readyz.
ARG BASE=docker.io/library/python:3.12-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
# The tools that build our wheel stay in a folder of their own.
RUN python -m pip install --quiet --target /tools "hatchling>=1.27"
COPY requirements-serve.lock ./
RUN python -m pip install --quiet --no-compile --no-deps --require-hashes --only-binary :all: -r requirements-serve.lock
COPY pyproject.toml README.md LICENSE ./
COPY webhook ./webhook
COPY certs ./certs
RUN PYTHONPATH=/tools python -m hatchling build --target wheel --directory /dist \
 && python -m pip install --quiet --no-compile --no-deps --no-index /dist/*.whl
COPY deploy/image/assemble.py ./
ARG SOURCE_DATE_EPOCH=0
RUN PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} python assemble.py /image/dependencies /image/application

FROM scratch
COPY --from=build /image/dependencies/ /
COPY --from=build /image/application/ /
ENV PATH=/usr/local/bin LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/usr/local/bin/ckptguard"]
CMD ["serve"]
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Checkpoint Guard" \
      org.opencontainers.image.description="Admission webhook that makes Kubeflow TrainJobs come back from where they stopped" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.12-slim"
