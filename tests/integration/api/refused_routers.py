"""Bad settings of the router and of what it tells, as `test_refused` tries them."""

from typing import Any

from tests.support.inference_clusters import case

PLAIN, TLS = "grpc://authorizer:9191", "https://authorizer"


def built_in(name: str, field: str, words: str, **settings: Any) -> Any:
    """Return a case of the built-in router's settings, of which a field is refused."""
    return case(name, f"spec.router.builtIn.{field}", words, spec__router__builtIn=settings)


def authorizer(name: str, field: str, words: str, endpoint: str = PLAIN, **settings: Any) -> Any:
    """Return a case of an external authorizer's settings."""
    return built_in(name, f"authorizer.{field}", words, authorizer={"endpoint": endpoint, **settings})


def external(name: str, field: str, words: str, **settings: Any) -> Any:
    """Return a case of an external router's settings."""
    return case(name, f"spec.router.external.{field}", words, spec__router={"type": "External", "external": settings})


def tracing(name: str, field: str, words: str, endpoint: str = "http://otel-collector:4318", **settings: Any) -> Any:
    """Return a case of what is said of traces."""
    return case(name, f"spec.tracing.{field}", words, spec__tracing={"endpoint": endpoint, **settings})


RATE = "rateLimit.requestsPerSecond"

BUILT_IN = [
    built_in("rate-limit-in-words", RATE, "such as '5' or '0.2'", rateLimit={"requestsPerSecond": "five"}),
    built_in("rate-limit-of-nothing", RATE, "leave rateLimit out for no limit", rateLimit={"requestsPerSecond": "0"}),
    built_in("rate-limit-without-rate", RATE, "Required value", rateLimit={}),
    built_in("certificate-without-secret", "tls.secretName", "Required value", tls={}),
    built_in("api-keys-of-no-name", "apiKeys.secretName", "lower-case letters", apiKeys={"secretName": "My Keys"}),
    built_in(
        "keys-and-an-authorizer",
        "authorizer",
        "at most one of apiKeys and authorizer",
        apiKeys={"secretName": "keys"},
        authorizer={"endpoint": PLAIN},
    ),
    built_in(
        "workers-without-certificate",
        "workerTls.secretName",
        "Required value",
        workerTls={"clientSecretName": "router"},
    ),
    built_in(
        "workers-of-no-name",
        "workerTls.serverName",
        "must be a DNS name",
        workerTls={"secretName": "workers", "clientSecretName": "router", "serverName": "*.workers"},
    ),
    built_in(
        "events-in-plain-text-beside-tls",
        "kvEvents",
        "at most one of kvEvents and workerTls",
        kvEvents={},
        workerTls={"secretName": "workers", "clientSecretName": "router"},
    ),
    built_in("tokens-after-never", "kvEvents.tokenizeTimeout", "duration", kvEvents={"tokenizeTimeout": "soon"}),
    built_in("class-name", "classes[0].name", "lowercase letters, digits and dashes", classes=[{"name": "Not_A_Name"}]),
    built_in("no-router-replicas", "replicas", "equal to 1", replicas=0),
]

AUTHORIZER = [
    authorizer("authorizer-without-scheme", "endpoint", "must be grpc://HOST:PORT", "authorizer:9191"),
    authorizer("authorizer-at-no-port", "endpoint", "must be grpc://HOST:PORT", "grpc://authorizer:65536"),
    authorizer("authorizer-over-tls-at-no-port", "endpoint", "over TLS grpcs and https", "grpcs://authorizer"),
    authorizer("authorizer-in-no-time", "timeout", "longer than zero", timeout="0s"),
    authorizer("authorizer-takes-the-body-s-type", "credentials[0]", "is no credential", credentials=["content-type"]),
    authorizer("credential-in-capitals", "credentials[0]", "in lower case", credentials=["X-API-Key"]),
    authorizer("authorizer-in-plain-text-with-tls", "tls", "begins with grpcs:// or https://", tls={}),
    authorizer("authorizer-of-no-name", "tls.serverName", "must be a DNS name", TLS, tls={"serverName": "*.security"}),
    authorizer(
        "authorizer-of-no-ca", "tls.caSecretName", "must be an object's name", TLS, tls={"caSecretName": "The CA"}
    ),
]

EXTERNAL = [
    case("external-router-undescribed", "spec.router.external", "external: {}", spec__router={"type": "External"}),
    case("external-settings-of-built-in", "spec.router.external", "set type to External", spec__router__external={}),
    external("roles-with-one-label", "roleLabels", "three different values", roleLabels={"draining": "decode"}),
    external(
        "prometheus-for-figures-of-workers",
        "metrics.prometheus",
        "set source to Prometheus",
        metrics={"prometheus": {"podLabel": "pod_name"}},
    ),
    external(
        "a-prometheus-label-with-a-dash",
        "metrics.prometheus.podLabel",
        "must be a Prometheus label",
        metrics={"source": "Prometheus", "prometheus": {"podLabel": "pod-name"}},
    ),
]

TRACING = [
    tracing(
        "traces-to-a-path",
        "endpoint",
        "must be http://HOST or http://HOST:PORT without a path",
        "http://otel-collector:4318/v1/traces",
    ),
    tracing("more-traces-than-requests", "samplingRatio", "must be a share from '0' to '1'", samplingRatio="1.5"),
    tracing("traces-of-a-percentage", "samplingRatio", "must be a share from '0' to '1'", samplingRatio="5%"),
]

ROUTERS = [*BUILT_IN, *AUTHORIZER, *EXTERNAL, *TRACING]
