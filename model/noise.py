"""Randomness is a function of numbers that are known, so there is no generator state to save."""

from hashlib import blake2b


def mix(*numbers: int) -> int:
    """One seed in [0, 2⁶³) from several numbers, such as (seed, step); neighbours give unrelated seeds."""
    return int.from_bytes(blake2b(str(numbers).encode(), digest_size=8).digest(), "big") >> 1
