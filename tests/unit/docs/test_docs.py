"""What the documentation and the samples say must be so: resources are valid, links lead somewhere."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.scenarios import allswing
from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.conditions.conditions import Reason, Type

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("charts/**/*.md")])
SAMPLES = sorted([*ROOT.glob("e2e/**/*.yaml"), *ROOT.glob("manifests/samples/**/*.yaml")])


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _clusters(text: str) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and document.get("kind") == names.KIND:
            yield document


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if names.KIND in page.read_text()], ids=_id)
def test_resources_in_pages_are_valid(page: Path) -> None:
    for block in _blocks(page):
        for found in _clusters(block):
            assert found["apiVersion"] == f"{names.GROUP}/{names.VERSION}"
            InferenceClusterSpec.model_validate(found["spec"])


@pytest.mark.parametrize("sample", SAMPLES, ids=_id)
def test_samples_are_valid(sample: Path) -> None:
    for found in _clusters(sample.read_text()):
        InferenceClusterSpec.model_validate(found["spec"])


def test_the_demo_and_the_scenarios_have_their_resources() -> None:
    texts = [(ROOT / path).read_text() for path in ("e2e/demo/sample.yaml", "e2e/scenarios/baseline.yaml")]
    for text in (*texts, allswing.MANIFEST):
        assert len(list(_clusters(text))) == 1


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{_id(page)} links to {target}"


@pytest.mark.parametrize(
    ("index", "pages"), [("docs/index.md", "docs/**/[a-z]*.md"), ("docs/adr/README.md", "docs/adr/0*.md")]
)
def test_an_index_leads_to_every_page(index: str, pages: str) -> None:
    page = ROOT / index
    targets = {(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())}
    assert set(ROOT.glob(pages)) - targets - {page} == set()


def test_every_dependency_has_its_reason_in_a_record() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    records = "".join(page.read_text() for page in ROOT.glob("docs/adr/0*.md"))
    names = [re.split(r"[<>=]", line)[0] for line in asked]
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", records)] == []


def test_every_condition_and_its_reasons_are_explained() -> None:
    page = (ROOT / "docs" / "reference" / "conditions.md").read_text()
    assert [word for word in (*Type, *Reason) if f"`{word}`" not in page] == []
