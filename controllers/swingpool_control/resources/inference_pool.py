"""The InferencePool of a cluster, and the Service by which gateways of others reach its endpoint picker.

Field by field as the Gateway API inference extension has them, `inference.networking.k8s.io/v1`.
"""

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources.metadata import Manifest, Owner

GROUP, VERSION = "inference.networking.k8s.io", "v1"
KIND, PLURAL = "InferencePool", "inferencepools"
CERTIFICATE_DIRECTORY = "/etc/swingpool/gateway"
VOLUME = "gateway"


def children(owner: Owner, spec: InferenceClusterSpec) -> tuple[Manifest, ...]:
    """Return both, or nothing if nobody asked for them."""
    if spec.router.built_in.inference_pool is None:
        return ()
    labels, service = owner.labels(component=names.COMPONENT_ROUTER), names.picker(owner.name)
    pool = owner.child(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=owner.name, labels=labels)
    port = {
        "name": "ext-proc",
        "port": names.SERVICE_PORT_PICKER,
        "targetPort": "gateway",
        "protocol": "TCP",
        "appProtocol": "http2",
    }
    return (
        owner.child(api_version="v1", kind="Service", name=service, labels=labels)
        | {
            "spec": {
                "type": "ClusterIP",
                "selector": owner.selector(component=names.COMPONENT_ROUTER),
                "ports": [port],
            }
        },
        pool
        | {
            "spec": {
                "selector": {"matchLabels": owner.selector(component=names.COMPONENT_WORKER)},
                "targetPorts": [{"number": names.PORT_WORKER}],
                "endpointPickerRef": {
                    "kind": "Service",
                    "name": service,
                    "port": {"number": names.SERVICE_PORT_PICKER},
                    # A worker must see no request that the picker has not read: it could name a host to connect to.
                    "failureMode": "FailClose",
                },
            }
        },
    )
