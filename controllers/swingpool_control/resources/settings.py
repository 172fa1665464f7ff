"""What the installer decides about the children of all clusters: images, how to pull them, who they run as."""

from dataclasses import dataclass

DEFAULT_ENVOY_IMAGE = "envoyproxy/envoy:distroless-v1.40.0"
DEFAULT_VLLM_IMAGE = "vllm/vllm-openai:v0.32.0"
DEFAULT_USER_ID = 65532


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """Settings of the manager that stand in no InferenceCluster."""

    swingpool_image: str
    """Image of the picker and of simulated workers."""
    envoy_image: str = DEFAULT_ENVOY_IMAGE
    envoy_command: tuple[str, ...] = ("envoy",)
    """How Envoy is started in its image."""
    vllm_image: str = DEFAULT_VLLM_IMAGE
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets, in the InferenceCluster's namespace, for all images; workers use those of `spec.engine` too."""
    run_as_user: int | None = DEFAULT_USER_ID
    """User and group id of every container; None leaves both to the platform, as OpenShift wants it."""
