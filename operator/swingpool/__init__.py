"""The shell of Swingpool: the processes that act on what `swingpool_control` decides."""
