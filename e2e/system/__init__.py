"""An installed Swingpool on a real cluster, as the demo and the scenarios see and handle it."""
