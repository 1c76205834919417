"""How sure a figure is."""

import math

Z95 = 1.959963984540054


def wilson_interval(wrong: int, total: int, z: float = Z95) -> tuple[float, float]:
    """The 95 % interval of a share that was measured as wrong / total (Wilson, 1927)."""
    share = wrong / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)
