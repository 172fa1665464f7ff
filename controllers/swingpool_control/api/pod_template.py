"""A pool's overrides of its pod template: free, but for what Swingpool's own work stands on.

The value stays a plain mapping, since a pod has more fields than we shall ever list. The schema here describes the few
that rules look at and lets the rest through; the API server checks the rest when it makes the pod.
"""

from typing import Annotated, Any

from pydantic import WithJsonSchema

from swingpool_control import names
from swingpool_control.api.rules import VALIDATIONS, Rule

_PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
_OWN_LABELS = f"['{names.LABEL_MANAGED_BY}', '{names.LABEL_COMPONENT}', 'app.kubernetes.io/name']"
_OWN_PORTS = [names.PORT_WORKER, names.PORT_SIDE_CHANNEL]
_OWN_ENVIRONMENT = "['VLLM_NIXL_SIDE_CHANNEL_HOST', 'VLLM_NIXL_SIDE_CHANNEL_PORT']"


def _own_keys(what: str, listed: str) -> dict[str, Any]:
    return Rule(
        cel=f"self.all(k, !k.startsWith('{names.GROUP}/') && !(k in {listed}))",
        message=f"{what} under {names.GROUP}/ and {listed[1:-1]} belong to Swingpool, which selects and flips workers "
        f"by them: remove them here",
        reason="FieldValueForbidden",
    ).schema()


def _strings(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    }


_METADATA = {
    "type": "object",
    "description": "Labels and annotations that pods get besides Swingpool's own.",
    "properties": {
        "labels": {
            **_strings("Further labels of the pods."),
            VALIDATIONS: [_own_keys("labels", _OWN_LABELS)],
        },
        "annotations": {
            **_strings("Further annotations of the pods."),
            VALIDATIONS: [_own_keys("annotations", f"['{names.ANNOTATION_DELETION_COST}']")],
        },
    },
}

_CONTAINER = {
    "type": "object",
    "description": "A container as in a pod. Any field of a container is let through.",
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "description": f"Name of the container; the engine's is `{names.CONTAINER_WORKER}`.",
        },
        "args": {
            "type": "array",
            "maxItems": 256,
            "items": {"type": "string"},
            "description": "Arguments of a further container; the engine's are engine.extraArguments.",
        },
        "ports": {
            "type": "array",
            "maxItems": 64,
            "description": "Further ports of the container.",
            "items": {
                "type": "object",
                "description": "A port as in a container.",
                "properties": {"containerPort": {"type": "integer", "description": "The port, 1 to 65535."}},
                **_PRESERVE,
            },
            VALIDATIONS: [
                Rule(
                    cel=f"self.all(p, !has(p.containerPort) || !(p.containerPort in {_OWN_PORTS}))",
                    message=f"ports {names.PORT_WORKER} and {names.PORT_SIDE_CHANNEL} of a worker pod belong to "
                    "Swingpool, which reaches workers by them: remove them here",
                    reason="FieldValueForbidden",
                ).schema()
            ],
        },
        "env": {
            "type": "array",
            "maxItems": 256,
            "description": "Further environment variables, merged by name.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "description": "An environment variable as in a pod.",
                "required": ["name"],
                "properties": {
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 253,
                        "description": "Name of the variable.",
                        VALIDATIONS: [
                            Rule(
                                cel=f"!(self in {_OWN_ENVIRONMENT})",
                                message="belongs to Swingpool, which gives every worker its own handshake address: "
                                "remove it here",
                                reason="FieldValueForbidden",
                            ).schema()
                        ],
                    },
                },
                **_PRESERVE,
            },
        },
    },
    VALIDATIONS: [
        Rule(
            cel=f"self.name != '{names.CONTAINER_WORKER}' || !has(self.args)",
            message=f"args of container {names.CONTAINER_WORKER} belong to Swingpool: use the pool's "
            "engine.extraArguments",
            field=".args",
            reason="FieldValueForbidden",
        ).schema()
    ],
    **_PRESERVE,
}

_SPEC = {
    "type": "object",
    "description": "Spec as in a pod, merged over Swingpool's: containers, volumes and env by name, the rest by key.",
    "properties": {
        "containers": {
            "type": "array",
            "maxItems": 16,
            "description": f"Containers, merged by name: `{names.CONTAINER_WORKER}` is the engine's, others are added.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _CONTAINER,
        },
        "terminationGracePeriodSeconds": {
            "type": "integer",
            "description": "Not to be set; it follows from spec.engine.maxRequestDuration.",
        },
        "restartPolicy": {
            "type": "string",
            "maxLength": 16,
            "description": "Not to be set; workers are always restarted.",
        },
    },
    VALIDATIONS: [
        Rule(
            cel="!has(self.terminationGracePeriodSeconds)",
            message="terminationGracePeriodSeconds belongs to Swingpool: use spec.engine.maxRequestDuration",
            field=".terminationGracePeriodSeconds",
            reason="FieldValueForbidden",
        ).schema(),
        Rule(
            cel="!has(self.restartPolicy)",
            message="restartPolicy belongs to Swingpool: remove it, a Deployment's pods are always restarted",
            field=".restartPolicy",
            reason="FieldValueForbidden",
        ).schema(),
    ],
    **_PRESERVE,
}

PodTemplate = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "properties": {"metadata": _METADATA, "spec": _SPEC}}),
]
"""Mapping with at most the keys `metadata` and `spec`."""
