"""Where a sample is cut."""


def places(size):
    """Both ends byte by byte, every block of tar, and all over between."""
    spread = {round(size * part / 90) for part in range(1, 90)}
    blocks = set(range(512, size, 512))
    return sorted({*range(1, 24), *range(size - 40, size), *spread, *blocks} & set(range(1, size)))
