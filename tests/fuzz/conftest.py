"""What fuzzing needs: parts of Hypothesis that would else be loaded, and rewritten by pytest, amid deep recursion."""

import hypothesis.internal.conjecture.optimiser  # noqa: F401

from tests.integration.router.conftest import _stand, session, stand

__all__ = ["_stand", "session", "stand"]
