"""Which image has vLLM for a pool: by what its workers compute on, and by the version that the spec names.

vLLM publishes one repository per kind of accelerator, all with tags such as `v0.32.0` (its release pipeline; tags seen
in use: vllm-openai-rocm from 0.17.1, vllm-openai-cpu from 0.18.1). An installer who names another repository has an
image of their own making, and nobody can tell what else lies beside it: it is taken as it is.
"""

import re

from swingpool_control.api.pools import CPU, Pool
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.vllm.versions import parse

SUFFIX = {CPU: "-cpu", "amd.com/gpu": "-rocm"}
"""Of the repository's name, by the resource that a pool's workers ask for; all others use the plain one."""

_PUBLISHED = re.compile(r"(?P<repository>(?:.*/)?vllm-openai):v(?P<version>\d+\.\d+\.\d+)(?P<rest>[^@/:]*)")


def image(spec: InferenceClusterSpec, pool: Pool, *, installed: str) -> str:
    """Return the image of a pool's workers of vLLM.

    Args:
        spec: what the user wrote; an image there is taken as it is.
        pool: the pool, whose own image comes first.
        installed: the image that the manager was installed with.
    """
    chosen = pool.engine.image or spec.engine.image
    if chosen is not None:
        return chosen
    published = _PUBLISHED.fullmatch(installed)
    if published is None:
        return installed
    repository = published["repository"] + SUFFIX.get(pool.accelerator.resource, "")
    return f"{repository}:v{_release(spec.engine.version, published['version'])}{published['rest']}"


def _release(asked: str, installed: str) -> str:
    """Return the release with a version's name; one without a patch is the installed one's if that fits, or `.0`."""
    if asked.count(".") == 2:
        return asked
    return installed if parse(asked) == parse(installed) else f"{asked}.0"
