"""What Envoy looks for itself in requests that the picker has not read: while that is away, they go on as they came.

A request that the picker has placed carries the header that says where to, which clients cannot set. Any other one may
hold parameters of a transfer, by which its client would have a worker fetch from where it likes. So its body is parsed
here, and it goes on only if it surely holds none: what is no JSON, or is not called JSON, does not.
"""

from typing import Any

from swingpool_control import names
from swingpool_control.placement.openai import ENGINE_ARGUMENTS, KV_TRANSFER
from swingpool_control.resources.envoy_settings import FORM_TYPE, TYPE, Config

_NAMESPACE = "swingpool.unread"
_ABSENT = "absent"
_HOSTILE = (KV_TRANSFER, ENGINE_ARGUMENTS)
"""What must not be there as an object; as anything else engines refuse it."""

_ANY = "any"
"""Envoy tells reliably only whether there is an object to look for a key in, whether or not that key is in it."""

_BODILESS = ("GET", "HEAD", "OPTIONS", "DELETE")


def unread_filters() -> list[Config]:
    """Return the filters, for after the picker's."""
    return [
        _if_unplaced("swingpool.unread.look", _look()),
        _if_unplaced("swingpool.unread.refuse", _refuse()),
    ]


def _look() -> Config:
    rules = [
        {
            "selectors": [{"key": name}, {"key": _ANY}],
            "on_missing": _note(name, _ABSENT),
            "on_present": _note(name, "present"),
            "on_error": _note(name, "unknown"),
        }
        for name in _HOSTILE
    ]
    return {
        "@type": f"{TYPE}.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        "request_rules": {
            "rules": rules,
            "allow_content_types_regex": {"regex": "(?i)application/json *(;.*)?"},
            "allow_empty_content_type": True,
        },
    }


def _note(name: str, value: str) -> Config:
    return {"metadata_namespace": _NAMESPACE, "key": name, "value": value}


def _refuse() -> Config:
    form = {"header": {"name": "content-type", "string_match": {"prefix": FORM_TYPE, "ignore_case": True}}}
    bodiless = [{"header": {"name": ":method", "string_match": {"exact": method}}} for method in _BODILESS]
    absent = [{"sourced_metadata": {"metadata_matcher": _is(name), "metadata_source": "DYNAMIC"}} for name in _HOSTILE]
    harmless = {"or_rules": {"rules": [form, *bodiless, {"and_rules": {"rules": absent}}]}}
    return {
        "@type": f"{TYPE}.extensions.filters.http.rbac.v3.RBAC",
        "rules": {
            "action": "ALLOW",
            "policies": {"harmless": {"permissions": [harmless], "principals": [{"any": True}]}},
        },
    }


def _is(name: str) -> Config:
    value = {"string_match": {"exact": _ABSENT}}
    return {"filter": _NAMESPACE, "path": [{"key": name}], "value": value}


def _if_unplaced(name: str, config: dict[str, Any]) -> Config:
    """Return a filter that requests which the picker has placed do not meet."""
    placed = {
        "single_predicate": {
            "input": {
                "name": "destination",
                "typed_config": {
                    "@type": f"{TYPE}.type.matcher.v3.HttpRequestHeaderMatchInput",
                    "header_name": names.HEADER_DESTINATION,
                },
            },
            "value_match": {"safe_regex": {"google_re2": {}, "regex": ".+"}},
        }
    }
    skip = {"@type": f"{TYPE}.extensions.filters.common.matcher.action.v3.SkipFilter"}
    return {
        "name": name,
        "typed_config": {
            "@type": f"{TYPE}.extensions.common.matching.v3.ExtensionWithMatcher",
            "extension_config": {"name": name, "typed_config": config},
            "xds_matcher": {
                "matcher_list": {
                    "matchers": [{"predicate": placed, "on_match": {"action": {"name": "skip", "typed_config": skip}}}]
                }
            },
        },
    }
