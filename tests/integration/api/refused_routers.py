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
    case(
        "authorizer-without-scheme",
        "spec.router.builtIn.authorizer.endpoint",
        "must be grpc://HOST:PORT",
        spec__router__builtIn={"authorizer": {"endpoint": "authorizer:9191"}},
    ),
    case(
        "authorizer-at-no-port",
        "spec.router.builtIn.authorizer.endpoint",
        "must be grpc://HOST:PORT",
        spec__router__builtIn={"authorizer": {"endpoint": "grpc://authorizer:65536"}},
    ),
    case(
        "authorizer-in-no-time",
        "spec.router.builtIn.authorizer.timeout",
        "longer than zero",
        spec__router__builtIn={"authorizer": {"endpoint": "grpc://authorizer:9191", "timeout": "0s"}},
    ),
    case(
        "authorizer-takes-the-body-s-type",
        "spec.router.builtIn.authorizer.credentials[0]",
        "is no credential",
        spec__router__builtIn={"authorizer": {"endpoint": "grpc://authorizer:9191", "credentials": ["content-type"]}},
    ),
    case(
        "credential-in-capitals",
        "spec.router.builtIn.authorizer.credentials[0]",
        "in lower case",
        spec__router__builtIn={"authorizer": {"endpoint": "grpc://authorizer:9191", "credentials": ["X-API-Key"]}},
    ),
    case(
        "authorizer-in-plain-text-with-tls",
        "spec.router.builtIn.authorizer.tls",
        "begins with grpcs:// or https://",
        spec__router__builtIn={"authorizer": {"endpoint": "grpc://authorizer:9191", "tls": {}}},
    ),
    case(
        "authorizer-over-tls-at-no-port",
        "spec.router.builtIn.authorizer.endpoint",
        "over TLS grpcs and https",
        spec__router__builtIn={"authorizer": {"endpoint": "grpcs://authorizer"}},
    ),
    case(
        "authorizer-of-no-name",
        "spec.router.builtIn.authorizer.tls.serverName",
        "must be a DNS name",
        spec__router__builtIn={
            "authorizer": {"endpoint": "https://authorizer", "tls": {"serverName": "*.security"}},
        },
    ),
    case(
        "authorizer-of-no-ca",
        "spec.router.builtIn.authorizer.tls.caSecretName",
        "must be an object's name",
        spec__router__builtIn={
            "authorizer": {"endpoint": "https://authorizer", "tls": {"caSecretName": "The CA"}},
        },
    ),
    case(
        "keys-and-an-authorizer",
        "spec.router.builtIn.authorizer",
        "at most one of apiKeys and authorizer",
        spec__router__builtIn={
            "apiKeys": {"secretName": "keys"},
            "authorizer": {"endpoint": "grpc://authorizer:9191"},
        },
    ),
    case(
        "workers-without-certificate",
        "spec.router.builtIn.workerTls.secretName",
        "Required value",
        spec__router__builtIn={"workerTls": {"clientSecretName": "router"}},
    ),
    case(
        "workers-of-no-name",
        "spec.router.builtIn.workerTls.serverName",
        "must be a DNS name",
        spec__router__builtIn={
            "workerTls": {"secretName": "workers", "clientSecretName": "router", "serverName": "*.workers"}
        },
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
