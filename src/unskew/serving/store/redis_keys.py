"""A store in Redis, for several servers.

    unskew:current                     hash: which generation of each part holds; its change is the commit
    unskew:<part>:<generation>         hash: the rows by key, and their head

A generation is written under a lifetime that every block prolongs, so what a dead writer leaves goes by itself.
One transaction then makes it last, names it in `current`, and gives the one that it replaces some seconds to live,
for requests that still read it. Every lookup asks for a mark as well: where that is gone, so is the generation,
and nothing is taken for unknown. Several writers do not disturb each other; the last to end holds.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from unskew.errors import StoreError, optional
from unskew.serving.store.store import HEAD, Rows, Store, StoredPart, StoreHead

CURRENT = "unskew:current"
MARK = b"\x01"
"""A field that every whole generation has, besides its rows and head."""
FRESH = 0.25
"""Seconds for which a server takes what holds as known."""
UNFINISHED = 600
"""Seconds that a generation lives which is not written further."""
REPLACED = 15
"""Seconds that a generation lives on when it was replaced."""
PATIENCE = 1.0
"""Seconds to wait for an answer or a connection, when a request looks something up."""
WRITING = 10.0
"""The same, for who writes."""
AWAY = 0.5
"""Seconds for which a Redis that did not answer is not asked again, so that requests do not queue up for it."""


class RedisKeys(Store):
    """The address; it is connected to when something is looked up, and again when it was away."""

    def __init__(self, address: str) -> None:
        redis = optional("redis", "serve")
        self.place = shown(address)
        self._client, self._writer = (self._connected(redis, address, each) for each in (PATIENCE, WRITING))
        self._known: tuple[float, dict[str, StoredPart]] | None = None
        self._away: tuple[float, str] | None = None

    def _connected(self, redis: Any, address: str, patience: float) -> Any:
        lost = redis.ConnectionError  # of a connection that was cut; a new one may do; not of one that is silent
        retry = optional("redis.retry", "serve").Retry(optional("redis.backoff", "serve").NoBackoff(), 1, (lost,))
        try:
            return redis.Redis.from_url(
                address, socket_timeout=patience, socket_connect_timeout=patience, retry=retry
            )
        except ValueError as error:
            raise StoreError(
                f"{self.place} is no address of Redis ({error}); write redis://host:6379/0"
            ) from error

    def current(self) -> Mapping[str, StoredPart]:
        """The parts that hold now, or held a moment ago."""
        known = self._known
        if known is not None and time.monotonic() - known[0] < FRESH:
            return known[1]
        before, asked = {} if known is None else known[1], time.monotonic()
        with self.asked():
            named = self._client.hgetall(CURRENT)
            if not named:
                raise StoreError(
                    f"{self.place} has no store of features; make one with `unskew store PLACE --items TABLE`"
                )
            parts: dict[str, StoredPart] = {}
            for name, generation in ((name.decode(), each.decode()) for name, each in named.items()):
                same = before.get(name)
                new = same is None or same.generation != generation
                parts[name] = _Hash(self, name, generation) if new else before[name]
        self._known = asked, parts
        return parts

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Ask Redis, unless it was away a moment ago; later one finds out whether it is back, others go on."""
        if (away := self._away) is not None:
            until, said = away
            if time.monotonic() < until:
                raise StoreError(said)
            self._away = time.monotonic() + PATIENCE, said
        try:
            yield
        except optional("redis", "serve").RedisError as error:
            said = " ".join(str(error).split()).rstrip(".")[:200]
            told = f"{self.place} does not answer ({said}); start it, or check the address"
            self._away = time.monotonic() + AWAY, told
            raise StoreError(told) from error
        except BaseException:
            self._away = None  # it answered
            raise
        self._away = None

    def fetch(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        """Fields of a generation; an error where it is gone, or not whole."""
        mark, *found = self._client.hmget(key, [MARK, *fields])
        if mark is None:
            self._known = None
            raise StoreError(f"{self.place}: the features were replaced or removed just now; ask again")
        return list(found)

    def replace(self, parts: Mapping[str, tuple[StoreHead, Rows]]) -> None:
        """Write a hash for each part, then name all of them."""
        made: dict[str, str] = {}
        try:
            with self.asked():
                for name, (head, rows) in parts.items():
                    made[name] = uuid.uuid4().hex[:16]
                    self._write(key_of(name, made[name]), head, rows)
                self._switch(made)
        except BaseException:
            self._forget(made)
            raise
        self._known = None

    def _write(self, key: str, head: StoreHead, rows: Rows) -> None:
        for keys, values in rows:
            with self._writer.pipeline(transaction=True) as pipe:
                pipe.hset(key, mapping=dict(zip(keys, values, strict=True)))
                pipe.expire(key, UNFINISHED)
                pipe.execute()
        whole = {HEAD: head.packed(), MARK: b"1"}
        self._writer.hset(key, mapping=whole)
        self._writer.expire(key, UNFINISHED)
        if self._writer.hlen(key) != head.rows + len(whole):
            what = "lost rows while they were written, or two ids are the same text"
            raise StoreError(f"{self.place} {what}; give it more memory, or each item an id of its own")

    def _switch(self, made: Mapping[str, str]) -> None:
        """From now on these hold, and what they replace goes soon."""

        def change(pipe: Any) -> None:
            old = {name.decode(): each.decode() for name, each in pipe.hgetall(CURRENT).items()}
            pipe.multi()
            for name, generation in made.items():
                pipe.persist(key_of(name, generation))
                if old.get(name, generation) != generation:  # it is, where the answer was lost and this runs again
                    pipe.expire(key_of(name, old[name]), REPLACED)
            pipe.hset(CURRENT, mapping=dict(made))

        self._writer.transaction(change, CURRENT)

    def _forget(self, made: Mapping[str, str]) -> None:
        """Remove what was not finished, where that can be done; else it goes by itself."""
        try:
            held = {each.decode() for each in self._writer.hvals(CURRENT)}
            gone = [key_of(name, each) for name, each in made.items() if each not in held]
            if gone:
                self._writer.unlink(*gone)
        except optional("redis", "serve").RedisError:
            pass

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()
        self._writer.close()


class _Hash(StoredPart):
    def __init__(self, keys: RedisKeys, name: str, generation: str) -> None:
        self._keys, self._key, self.generation = keys, key_of(name, generation), generation
        self.head = StoreHead.unpacked(keys.fetch(self._key, [HEAD])[0], keys.place)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows stored under these keys; None where there is none."""
        with self._keys.asked():
            return self._keys.fetch(self._key, keys)


def key_of(part: str, generation: str) -> str:
    """Where a generation of a part lies."""
    return f"unskew:{part}:{generation}"


def shown(address: str) -> str:
    """An address without user and password.

    >>> shown("redis://me:secret@cache:6379/1?x=y")
    'redis://cache:6379/1'
    """
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
