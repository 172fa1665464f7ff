"""Protobuf's numbers of any size, for messages that are written by hand because objects cost more or cannot be had."""


def varint(value: int) -> bytes:
    """Return a number, not negative, as protobuf writes it."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
