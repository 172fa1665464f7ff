"""The CustomResourceDefinition: the models' schemas, rules of the resource as a whole, and how lists of it look."""

from typing import Any

from swingpool_control import names
from swingpool_control.api.rules import VALIDATIONS, Rule
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.api.structural import Schema, structural
from swingpool_control.api.v1alpha1 import InferenceClusterSpec

CLUSTER_NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition of InferenceCluster as plain data.

    Raises:
        SchemaError: a model uses what a structural schema cannot express.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
                "categories": ["all", "swingpool"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _resource_schema()},
                }
            ],
        },
    }


def _resource_schema() -> Schema:
    return {
        "type": "object",
        "description": "A model served by pools of workers that compute prompts (prefill), generate tokens (decode), "
        "or change between the two as the load asks (swing).",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the form of this resource."},
            "kind": {"type": "string", "description": "Kind of this resource."},
            # Rules may blame only fields that stand in the schema.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": {**structural(InferenceClusterSpec), "description": "What shall be."},
            "status": {**structural(InferenceClusterStatus), "description": "What is; written by Swingpool."},
        },
        VALIDATIONS: [
            Rule(
                cel=f"size(self.metadata.name) <= {names.MAX_CLUSTER_NAME}",
                message=f"must have at most {names.MAX_CLUSTER_NAME} characters, so that the names of its Services, "
                "Deployments and labels fit: choose a shorter one",
                field=".metadata.name",
            ).schema(),
            Rule(
                cel=f"self.metadata.name.matches(r'{CLUSTER_NAME_PATTERN}')",
                message="must be lower-case letters, digits and dashes, and start with a letter, so that it can begin "
                "a Service's name: choose another",
                field=".metadata.name",
            ).schema(),
        ],
    }


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    objectives = '.status.conditions[?(@.type=="ObjectivesMet")]'
    columns = (
        ("Ready", "string", f"{ready}.status", "Whether every role serves.", 0),
        ("Reason", "string", f"{ready}.reason", "Why it is ready or not.", 0),
        ("Objectives", "string", f"{objectives}.status", "Whether TTFT and ITL hold as clients see them.", 0),
        ("Workers", "string", ".status.workers", "Ready and wanted workers.", 0),
        ("Roles", "string", ".status.roles", "Ready workers by role.", 0),
        ("Model", "string", ".spec.model.name", "The model.", 0),
        ("Age", "date", ".metadata.creationTimestamp", "", 0),
        ("Endpoint", "string", ".status.endpoint", "Where clients send requests.", 1),
        ("Message", "string", f"{ready}.message", "Why it is ready or not, in a sentence.", 1),
    )
    return [
        {"name": name, "type": kind, "jsonPath": path}
        | ({"description": description} if description else {})
        | ({"priority": priority} if priority else {})
        for name, kind, path, description, priority in columns
    ]
