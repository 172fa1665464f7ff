"""Bad settings of the router, as `test_refused` tries them."""

from tests.support.inference_clusters import case

ROUTERS = [
    case(
        "rate-limit-in-words",
        "spec.router.builtIn.rateLimit.requestsPerSecond",
        "such as '5' or '0.2'",
        spec__router__builtIn={"rateLimit": {"requestsPerSecond": "five"}},
    ),
    case(
        "rate-limit-of-nothing",
        "spec.router.builtIn.rateLimit.requestsPerSecond",
        "leave rateLimit out for no limit",
        spec__router__builtIn={"rateLimit": {"requestsPerSecond": "0"}},
    ),
    case(
        "rate-limit-without-rate",
        "spec.router.builtIn.rateLimit.requestsPerSecond",
        "Required value",
        spec__router__builtIn={"rateLimit": {}},
    ),
    case(
        "certificate-without-secret",
        "spec.router.builtIn.tls.secretName",
        "Required value",
        spec__router__builtIn={"tls": {}},
    ),
    case(
        "api-keys-of-no-name",
        "spec.router.builtIn.apiKeys.secretName",
        "lower-case letters",
        spec__router__builtIn={"apiKeys": {"secretName": "My Keys"}},
    ),
    case("external-router-undescribed", "spec.router.external", "external: {}", spec__router={"type": "External"}),
    case("external-settings-of-built-in", "spec.router.external", "set type to External", spec__router__external={}),
    case(
        "roles-with-one-label",
        "spec.router.external.roleLabels",
        "three different values",
        spec__router={"type": "External", "external": {"roleLabels": {"draining": "decode"}}},
    ),
    case(
        "class-name",
        "spec.router.builtIn.classes[0].name",
        "lowercase letters, digits and dashes",
        spec__router__builtIn__classes=[{"name": "Not_A_Name"}],
    ),
    case("no-router-replicas", "spec.router.builtIn.replicas", "equal to 1", spec__router__builtIn__replicas=0),
    case(
        "traces-to-a-path",
        "spec.tracing.endpoint",
        "must be http://HOST or http://HOST:PORT without a path",
        spec__tracing={"endpoint": "http://otel-collector:4318/v1/traces"},
    ),
    case(
        "more-traces-than-requests",
        "spec.tracing.samplingRatio",
        "must be a share from '0' to '1'",
        spec__tracing={"endpoint": "http://otel-collector:4318", "samplingRatio": "1.5"},
    ),
    case(
        "traces-of-a-percentage",
        "spec.tracing.samplingRatio",
        "must be a share from '0' to '1'",
        spec__tracing={"endpoint": "http://otel-collector:4318", "samplingRatio": "5%"},
    ),
    case(
        "prometheus-for-figures-of-workers",
        "spec.router.external.metrics.prometheus",
        "set source to Prometheus",
        spec__router={"type": "External", "external": {"metrics": {"prometheus": {"podLabel": "pod_name"}}}},
    ),
    case(
        "a-prometheus-label-with-a-dash",
        "spec.router.external.metrics.prometheus.podLabel",
        "must be a Prometheus label",
        spec__router={
            "type": "External",
            "external": {"metrics": {"source": "Prometheus", "prometheus": {"podLabel": "pod-name"}}},
        },
    ),
]
