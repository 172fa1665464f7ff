"""What fuzzing needs: parts of Hypothesis that would else be loaded, and rewritten by pytest, amid deep recursion."""

import hypothesis.internal.conjecture.optimiser  # noqa: F401
