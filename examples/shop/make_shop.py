"""Make the log of a small shop: four weeks of result pages, with a bias that we know and the dirt of real logs.

    python examples/shop/make_shop.py --out examples/shop

writes what a shop would have:

    log.csv.gz       one row per product shown: epoch milliseconds, who, query, SKU, rank from 0, click, device
    products.csv     what is known of each product: brand, price, rating (with gaps), reviews, margin
    queries.csv      what kind of query it is
    matches.csv      how well a product's text matches a query

The shop ranks by text match, reviews and, above all, margin, which people do not care about. They look at the
first results and seldom further, on phones less far than on desks. One page in ten is shuffled. What people really
want is `grades`; it is in no file, so that nothing can learn from it by accident.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("red", "blue", "green", "black", "white", "grey", "yellow", "orange")
THINGS = ("shoes", "jacket", "backpack", "tent", "bottle", "gloves", "lamp", "stove", "rope", "socks")
KINDS = ("browse", "bargain")
BRANDS = ("Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Ginkgo", "Hazel", "Ivy", "Juniper")
QUALITY = (0.9, 0.6, 0.4, 0.2, 0.1, -0.1, -0.2, -0.4, -0.6, -0.9)
"""How much people like each brand."""
PRODUCTS, PEOPLE, PAGE, WEEKS = 600, 420, 24, 4
START = datetime(2024, 3, 4, 6, tzinfo=UTC)
STEEPNESS = {"desktop": 0.9, "mobile": 1.5}
"""Examination of rank k is 1 / k to this power."""


@dataclass(frozen=True)
class Shop:
    """The shop: Q queries, P products, and for each query the products that it finds."""

    queries: tuple[str, ...]
    kind: np.ndarray
    """[Q] index into KINDS."""
    sku: tuple[str, ...]
    brand: np.ndarray
    """[P] index into BRANDS."""
    price: np.ndarray
    rating: np.ndarray
    """[P] stars from 1 to 5; NaN where nobody has rated the product yet."""
    reviews: np.ndarray
    margin: np.ndarray
    match: np.ndarray
    """[Q, P] how well the texts match; 0 where the query does not find the product."""
    grades: np.ndarray
    """[Q, P] what people want, 0 to 4."""

    def found(self, query: int) -> np.ndarray:
        """The products that a query finds."""
        return np.flatnonzero(self.match[query])


def make_shop(seed: int = 0) -> Shop:
    """The shop and what people want, drawn by a seed."""
    draw = np.random.default_rng([seed, 1])
    names = tuple(f"{colour} {thing}" for colour in COLOURS for thing in THINGS)
    thing, colour = draw.integers(len(THINGS), size=PRODUCTS), draw.integers(len(COLOURS), size=PRODUCTS)
    brand = draw.choice(len(BRANDS), size=PRODUCTS, p=np.arange(10, 0, -1) / 55)
    price = np.exp(draw.normal(3.4, 0.6, PRODUCTS)).round(2)
    taste = draw.normal(size=PRODUCTS)
    rating = np.clip(3.4 + 0.8 * taste + draw.normal(0, 0.5, PRODUCTS), 1, 5).round(1)
    reviews = draw.poisson(np.exp(2.0 + 0.4 * taste + draw.normal(0, 0.8, PRODUCTS)))
    rating[(reviews < 3) | (draw.random(PRODUCTS) < 0.1)] = np.nan
    kind = draw.integers(len(KINDS), size=len(names))
    same_thing = thing == np.arange(len(names))[:, None] % len(THINGS)
    same_colour = colour == np.arange(len(names))[:, None] // len(THINGS)
    fit = 2.0 * same_thing + 1.0 * same_colour + draw.gamma(2.0, 0.5, (len(names), PRODUCTS))
    match = np.where(same_thing, fit.round(3), 0.0)
    cheap = -(np.log(price) - 3.4) / 0.6
    wish = 0.9 * (fit - 3.2) + 0.9 * taste + 1.2 * np.array(QUALITY)[brand]
    wish = wish + np.where(kind[:, None] == 1, 1.2, 0.2) * cheap + draw.normal(0, 0.3, match.shape)
    edges = np.quantile(wish[match > 0], (0.45, 0.7, 0.86, 0.95))
    sku = tuple(f"SKU-{number:05d}" for number in draw.choice(99_999, PRODUCTS, replace=False))
    margin = draw.beta(2, 4, PRODUCTS).round(3)
    return Shop(names, kind, sku, brand, price, rating, reviews, margin, match, np.digitize(wish, edges))


# ---- people ----


@dataclass(frozen=True)
class Row:
    """One product shown, as the shop logs it."""

    time: int
    visitor: str
    query: str
    sku: str
    rank: int
    clicked: int
    device: str
    shuffled: int
    cart_seconds: float | None

    def cells(self) -> list[Any]:
        """As a line of CSV."""
        return ["" if value is None else value for value in vars(self).values()]


def shown_order(shop: Shop, query: int, week: int, shuffled: bool, draw: np.random.Generator) -> np.ndarray:
    """The order of a result page: the shop's, which changes a little every week, or any."""
    found = shop.found(query)
    if shuffled:
        return draw.permutation(found)
    weekly = np.random.default_rng([query, week]).normal(0, 0.25, len(found))
    score = 0.4 * shop.match[query, found] + 0.25 * np.log1p(shop.reviews[found]) + 3.5 * shop.margin[found]
    return found[np.argsort(-(score + weekly), kind="stable")]


def visits(shop: Shop, pages: int, seed: int) -> Iterator[list[Row]]:
    """Result pages in the order of time, each as its rows; some look further, at ranks 24 to 47 a little later."""
    draw = np.random.default_rng([seed, 2])
    popular = draw.permutation(1 / np.arange(1, len(shop.queries) + 1) ** 0.5)
    moments = np.sort(draw.integers(0, WEEKS * 7 * 86_400_000, pages)) + int(START.timestamp() * 1000)
    device = draw.choice(("desktop", "mobile"), size=PEOPLE, p=(0.45, 0.55))
    queries = draw.choice(len(shop.queries), size=pages, p=popular / popular.sum())
    for moment, query in zip(moments.tolist(), queries.tolist(), strict=True):
        person = int(draw.integers(PEOPLE))
        week = (moment - int(START.timestamp() * 1000)) // (7 * 86_400_000)
        shuffled = bool(draw.random() < 0.1)
        order = shown_order(shop, query, week, shuffled, draw)
        deep = len(order) > PAGE and draw.random() < 0.08
        last = min(len(order), 2 * PAGE if deep else PAGE)
        yield page_rows(shop, query, order[:last], moment, person, str(device[person]), shuffled, draw)


def page_rows(
    shop: Shop,
    query: int,
    order: np.ndarray,
    moment: int,
    person: int,
    device: str,
    shuffled: bool,
    draw: np.random.Generator,
) -> list[Row]:
    """A page that was looked at from the top: clicked is what was looked at and wanted."""
    seen = draw.random(len(order)) < 1 / np.arange(1, len(order) + 1) ** STEEPNESS[device]
    wanted = draw.random(len(order)) < 0.04 + 0.9 * (2.0 ** shop.grades[query, order] - 1) / 15
    rows = []
    for rank, product in enumerate(order.tolist()):
        clicked = int(seen[rank] and wanted[rank])
        cart = round(float(draw.gamma(2, 20)), 1) if clicked and draw.random() < 0.9 else None
        beacon = moment + rank * int(draw.integers(20, 220)) + (45_000 if rank >= PAGE else 0)
        who, text = f"v{person:04d}", shop.queries[query]
        rows.append(Row(beacon, who, text, shop.sku[product], rank, clicked, device, int(shuffled), cart))
    return rows


def dirty(pages: Iterator[list[Row]], seed: int) -> Iterator[list[Any]]:
    """The rows as they were delivered: some twice, some cut off, and a program that clicks on everything."""
    draw = np.random.default_rng([seed, 3])
    for number, page in enumerate(pages):
        robot = number % 400 == 399
        for row in page:
            cells = row.cells()
            if robot:
                cells = [row.time, "v9999", *cells[2:5], 1, *cells[6:]]
            yield cells
            chance = draw.random()
            if chance < 0.002:
                yield cells
            elif chance < 0.004:
                yield [*cells[:3], "", *cells[4:]]


# ---- files ----


def table(path: Path, header: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    """Write a CSV file, compressed where its name says so; the same bytes every time."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def write_shop(shop: Shop, out: Path, *, pages: int = 1600, seed: int = 0) -> None:
    """Write the log and the tables of a shop."""
    out.mkdir(parents=True, exist_ok=True)
    table(out / "log.csv.gz", tuple(Row.__annotations__), dirty(visits(shop, pages, seed), seed))
    table(out / "products.csv", ("sku", "brand", "price", "rating", "reviews", "margin"), products(shop))
    kinds = zip(shop.queries, (KINDS[kind] for kind in shop.kind), strict=True)
    table(out / "queries.csv", ("query", "kind"), iter(list(kinds)))
    found = ((query, product) for query in range(len(shop.queries)) for product in shop.found(query).tolist())
    lines = ([shop.queries[query], shop.sku[product], shop.match[query, product]] for query, product in found)
    table(out / "matches.csv", ("query", "sku", "text_match"), lines)


def products(shop: Shop) -> Iterator[list[Any]]:
    """A line for each product."""
    for at, sku in enumerate(shop.sku):
        rating = "" if np.isnan(shop.rating[at]) else shop.rating[at]
        yield [sku, BRANDS[shop.brand[at]], shop.price[at], rating, shop.reviews[at], shop.margin[at]]


def main() -> None:
    """Write the shop's files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--pages", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    write_shop(make_shop(asked.seed), asked.out, pages=asked.pages, seed=asked.seed)


if __name__ == "__main__":
    main()
