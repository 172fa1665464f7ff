"""AIConfigurator beside Swingpool: asked in a process of its own, so that neither pins the other's dependencies."""
