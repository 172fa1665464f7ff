"""The pure core of Swingpool: values in, decisions out.

Nothing here waits, reads a clock, draws a random number or talks to anything; the live manager, the endpoint picker and
the simulator call the same functions.
"""
