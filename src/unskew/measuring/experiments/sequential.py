"""Intervals that may be looked at every day: asymptotic confidence sequences, and sample sizes.

I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences", Annals of Statistics 52(6), 2024, theorem 2.2 and its section on tuning.

An interval of 95 % holds at one size of the sample, chosen before. Who looks every day and stops when it leaves 0
is wrong far more often than 5 in 100 times. A confidence sequence holds at all sizes at once:

    mean ± sigma sqrt(2 (t r² + 1) / (t² r²) log(sqrt(t r² + 1) / alpha))
    r² = (-2 log alpha + log(-2 log alpha + 1)) / planned

t is the number of independent units (people, visits) and sigma their standard deviation. It is narrowest near
`planned` units, and holds for any; `planned` must not be chosen after a look at the data.

Differences from the paper: sigma comes from a standard error over clusters, so t counts clusters.
"""

from __future__ import annotations

from bisect import bisect_left
from math import ceil, exp, inf, log, sqrt

from scipy.special import ndtri

PLANNED = 10_000
"""Units that a sequence is narrowest at, unless told."""
FEWEST = 100
"""Units below which the central limit theorem says too little for a sequence."""
POWER = 0.8
"""Chance of finding a difference that sample sizes are for."""


def sequence_radius(units: int, *, planned: int = PLANNED, level: float = 0.95) -> float:
    """Half the width of a confidence sequence in standard deviations of a unit.

    >>> round(sequence_radius(10_000) / (1.959964 / 100), 3)  # beside an interval of a fixed size
    1.549
    """
    spread = _spread(planned, level)
    grown = units * spread + 1
    return sqrt(2 * grown / (units**2 * spread) * log(sqrt(grown) / (1 - level)))


def always_valid_p(difference: float, error: float, units: int, *, planned: int = PLANNED) -> float:
    """The smallest alpha whose sequence has left 0: a p-value that may be looked at every day.

    >>> always_valid_p(0.0, 1.0, 1000)
    1.0
    """
    if not error > 0:
        return 0.0 if difference else 1.0
    spread = _spread(planned, 0.95)
    grown = units * spread + 1
    return min(1.0, sqrt(grown) * exp(-((difference / error) ** 2) * units * spread / (2 * grown)))


def units_needed(deviation: float, difference: float, *, level: float = 0.95) -> int:
    """Units that find a difference, which is not 0, with the chance POWER, looked at once.

    (z_{1 - alpha / 2} + z_power)² deviation² / difference², with the standard deviation of a unit.

    >>> units_needed(1.0, 0.1)
    785
    """
    return ceil((reach(level) * deviation / difference) ** 2)


def reach(level: float = 0.95) -> float:
    """Standard errors that a difference must measure to be found with the chance POWER: 2.8 at 95 %."""
    return float(ndtri((1 + level) / 2) + ndtri(POWER))


def sequential_units_needed(
    deviation: float, difference: float, *, planned: int = PLANNED, level: float = 0.95
) -> int:
    """Units at which the sequence has left 0 with the chance POWER: more than `units_needed`."""
    effect, z = abs(difference) / deviation if deviation else inf, float(ndtri(POWER))

    def found(units: int) -> bool:
        return sequence_radius(units, planned=planned, level=level) + z / sqrt(units) <= effect

    return FEWEST + bisect_left(range(FEWEST, 2**52), True, key=found)


def _spread(planned: int, level: float) -> float:
    """r², by which the sequence is narrowest at so many units."""
    twice = -2 * log(1 - level)
    return (twice + log(twice + 1)) / planned
