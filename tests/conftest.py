"""How property tests run: without time limits of their own, since a busy machine is no failure.

`pytest --hypothesis-profile=thorough` looks much longer, `make fuzz` longest.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("usual", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("usual"), max_examples=1000)
settings.register_profile("fuzz", parent=settings.get_profile("usual"), max_examples=17_000, database=None)
settings.load_profile("usual")
