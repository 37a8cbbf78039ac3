"""What a server allows and does: sizes, times, and who may ask."""

import secrets
from typing import Literal

from pydantic import Field

from unskew.settings import Config


class Limits(Config):
    """Sizes and times past which a request is refused."""

    body: int = Field(16 * 2**20, ge=1024)
    """Bytes of a body."""
    documents: int = Field(1000, ge=1, le=100_000)
    """Documents of a request."""
    requests: int = Field(100, ge=1, le=10_000)
    """Requests of a batch."""
    features: int = Field(20_000, ge=1)
    """Features that a document may bring."""
    clicks: int = Field(1000, ge=1, le=10_000)
    """Clicks that are told of at once."""
    batch: int = Field(20_000, ge=1)
    """Documents of all requests of a batch."""
    numbers: int = Field(20_000_000, ge=1)
    """Documents of a body times features of the model."""
    reasons: int = Field(1_000_000, ge=1)
    """The same of those with `why`, since each number comes back with a name."""
    page: int = Field(2**20, ge=1024)
    """Bytes that a page may take in the log, about."""
    held: int = Field(64 * 2**20, ge=1024)
    """Bytes of all bodies that are being answered; in memory they take some twenty times as much."""
    connections: int = Field(800, ge=1)
    """Clients at once; the next one is answered with 503. A proxy ends those that are slow on purpose."""
    seconds: float = Field(10.0, gt=0)
    """Time for a body to arrive, and then for the answer to be found."""
    behind: float = Field(2.0, gt=0)
    """Seconds that requests may wait before they are looked at; past this they are answered with 503 at once."""
    at_once: int = Field(2, ge=1, le=64)
    """Requests that a process scores at the same time."""
    waiting: int = Field(64, ge=0, le=10_000)
    """Requests that wait for that in a process; the next one is answered with 503 at once."""


class ServeSettings(Config):
    """How a server behaves."""

    limits: Limits = Limits()
    token: str | None = Field(None, repr=False, exclude=True)
    """What callers must bring; None lets everybody in."""
    secret: bytes = Field(default_factory=lambda: secrets.token_bytes(32), repr=False, exclude=True)
    """Keys the coins of what is explored, and signs ids of pages; drawn anew unless given."""
    coins: Literal["request", "user"] = "request"
    """What a page's coins fall by: its request, or its user, query and day (UTC), whoever asks again."""
    tell_chances: bool = False
    """Whether answers say what explored them, and the chance of each result."""
    signed_pages: bool = False
    """Whether ids of pages are signed, and clicks on others refused."""
    poll: float = Field(0.25, gt=0)
    """Seconds between two looks at the run folders."""
    other_features: bool = False
    """Whether a run is taken up that takes features which the first one did not."""
    shadows: tuple[str, ...] = Field((), strict=False)
    """Models that are scored and logged with every request, and not shown."""
