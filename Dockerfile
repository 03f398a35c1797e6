# syntax=docker/dockerfile:1
# Holdfast in two stages: one builds a virtual environment from the lock, the other keeps only that.
#
#   docker build -t holdfast .
#   docker build --build-arg BASE=my.registry/debian-with-python@sha256:… -t holdfast .
#
# BASE needs Python 3.11 or newer with venv. The same commit, BASE and SOURCE_DATE_EPOCH give the
# same files: everything that is installed is in the lock, with its hash.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv /opt/holdfast
WORKDIR /source
COPY requirements-image.lock ./
RUN /opt/holdfast/bin/pip install --no-deps --no-compile --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/holdfast/bin/pip install --no-deps --no-compile --no-build-isolation . \
    && /opt/holdfast/bin/pip uninstall --yes hatchling editables trove-classifiers pluggy packaging \
    && rm -rf /opt/holdfast/lib/python3*/site-packages/pip /opt/holdfast/lib/python3*/site-packages/pip-* \
        /opt/holdfast/bin/pip* \
    && cd /opt/holdfast/lib/python3*/site-packages \
    # Nothing that runs here needs them: tests, headers, stubs, the second build of zstandard, and
    # what fetches models from a hub.
    && find . -type d \( -name __pycache__ -o -name tests -o -name include \) -prune -exec rm -rf {} + \
    && find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.a' \) -delete \
    && rm -rf zstandard/_cffi*.so hf_xet* huggingface_hub* setuptools* pkg_resources _distutils_hack distutils-precedence.pth \
    && if command -v strip >/dev/null; then find . -name '*.so*' -type f -exec strip --strip-unneeded {} + ; fi \
    && /opt/holdfast/bin/python -m compileall -q -j 2 --invalidation-mode unchecked-hash \
        aiohttp click holdfast msgspec multidict pydantic uvicorn yaml yarl

FROM ${BASE}
# tini reaps what tools leave behind and hands signals on; ripgrep and git are what agents ask for.
RUN missing=""; for name in tini rg:ripgrep git bwrap:bubblewrap; do \
        command -v "${name%%:*}" >/dev/null || missing="$missing ${name##*:}"; done; \
    if [ -n "$missing" ]; then apt-get update \
        && apt-get install --yes --no-install-recommends $missing && rm -rf /var/lib/apt/lists/*; fi
RUN (getent passwd 1000 >/dev/null || useradd --uid 1000 --user-group --create-home --shell /bin/bash agent) \
    && install -d -o 1000 -g 1000 -m 0755 /workspace /tools /metrics && install -d -o 1000 -g 1000 -m 0700 /state
COPY --from=build /opt/holdfast /opt/holdfast
COPY --chmod=0755 deploy/docker/entrypoint /usr/local/bin/holdfast-entrypoint
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/home/agent \
    OPENAI_BASE_URL=http://host.docker.internal:1234/v1 \
    OPENAI_API_KEY=lm-studio \
    AGENT_MODEL=gpt-4o-mini \
    AGENT_WORKSPACE=/workspace \
    AGENT_STATE_DIR=/state \
    AGENT_TOOLS_DIR=/tools \
    ALLOW_NET=false \
    HOLDFAST_LOG_FORMAT=json
USER 1000:1000
WORKDIR /workspace
VOLUME ["/state"]
EXPOSE 8321
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["holdfast-entrypoint", "health"]
ENTRYPOINT ["tini", "-g", "--", "holdfast-entrypoint"]
CMD ["serve"]
LABEL org.opencontainers.image.title="holdfast" \
      org.opencontainers.image.description="An agent runtime in which every step is kept" \
      org.opencontainers.image.licenses="Apache-2.0"
