"""A server under load while everything around it is replaced, killed, stopped, filled, emptied and broken.

Clients ask in all ways; a conductor, seeded, replaces models and features by known others, and does what machines
and people do: kills and stops workers and Redis, fills the disk of the log, breaks run folders, kills who writes.
Every answer is then held against what was true during the request.

    python reproductions/experiments/serving_chaos.py --seconds 600 --store redis --seed 0
    python reproductions/experiments/serving_chaos.py --seconds 600 --store lmdb --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import torch
from serving_checks import HUNG, Findings, History, Trouble, Update, check, check_log
from serving_clients import Client
from serving_world import World, make_world

from unskew.errors import StoreError
from unskew.files import complete_folder, digest_of
from unskew.learning.scoring.scorer import MODEL
from unskew.serving.store import open_store

UPDATES = ("save", "copy", "rsync", "rename", "link", "items", "clicks", "both")
TROUBLES = ("kill", "stop", "broken", "full", "killed_writer")
REDIS = ("redis_killed", "redis_stopped", "redis_emptied")


class RedisServer:
    """A redis-server of our own, on loopback."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Until it answers."""
        words = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as one:
                one.sendall(b"PING\r\n")
                if one.recv(100).startswith(b"+PONG"):
                    return
            time.sleep(0.02)

    def kill(self) -> None:
        """As a machine that fails."""
        self.process.kill()
        self.process.wait()


class Conductor:
    """What happens around the server."""

    def __init__(self, world: World, place: Path, store: str, seed: int) -> None:
        self.world, self.place, self.rng, self.history = world, place, random.Random(seed), History()
        self.redis = RedisServer(place / "redis") if store == "redis" else None
        self.store = f"redis://127.0.0.1:{self.redis.port}/0" if self.redis else str(place / "features")
        self.opened = open_store(self.store)
        shutil.copytree(world.model("main", 0), place / "main")
        (place / "plain").symlink_to(world.model("plain", 0))
        self.both()
        for name in ("main", "plain"):
            self.updated(name, time.monotonic(), digest_of(place / name / "model.json"))
        self.kept = 0

    def updated(self, what: str, began: float, value: str) -> None:
        """An update is done."""
        self.history.updates[what].append(Update(began, time.monotonic(), value))

    def trouble(self, kind: str, began: float, ended: float | None = None) -> None:
        """A trouble is over."""
        self.history.troubles.append(Trouble(kind, began, time.monotonic() if ended is None else ended))

    # ---- the server ----

    def start(self) -> str:
        """Start it; its address."""
        words = [sys.executable, "-m", "unskew", "serve", self.place / "main", self.place / "plain"]
        words += ["--store", self.store, "--log", self.place / "log", "--workers", "2", "--port", "0", "--json"]
        self.server = subprocess.Popen(
            list(map(str, words)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.started = 0
        self.hearing = threading.Thread(target=self.heard, daemon=True)
        self.hearing.start()
        address = json.loads(self.server.stdout.readline())["address"]
        while self.started < 2:
            time.sleep(0.05)
        self.kept = self.workers()[0]
        self.sizes: list[tuple[int, int]] = []
        return address

    def heard(self) -> None:
        """Keep what it says, in no file of its own, as those may be full; and count workers that started."""
        with (self.place.parent / "server.log").open("wb") as file:
            for line in self.server.stderr:
                self.started += b"startup complete" in line
                file.write(line)
                file.flush()

    def workers(self) -> list[int]:
        """Processes that answer."""
        found = []
        for pid in Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split():
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
        return found

    def measure(self) -> None:
        """Memory and open files of the worker that is never killed."""
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{self.kept}/status").read_text().splitlines()
            memory = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            self.sizes.append((memory, len(os.listdir(f"/proc/{self.kept}/fd"))))

    # ---- updates ----

    def chosen(self, name: str) -> Path:
        """Another model than the one that holds."""
        held = self.world.versions[name][self.history.updates[name][-1].value]
        return self.world.model(name, self.rng.choice([at for at in range(self.world.kinds) if at != held]))

    def save(self) -> None:
        """As `learn --force` does."""
        source, began = self.chosen("main"), time.monotonic()
        with complete_folder(self.place / "main", force=True, ours=MODEL) as working:
            shutil.copytree(source, working, dirs_exist_ok=True)
        self.updated("main", began, digest_of(source / "model.json"))

    def pieces(self, source: Path, *, whole: bool) -> None:
        """File after file, in any order: renamed into place, or written over in blocks."""
        names = [path.name for path in source.iterdir()]
        self.rng.shuffle(names)
        for name in names:
            content, target = (source / name).read_bytes(), self.place / "main" / name
            if whole:
                temporary = target.with_name(f".{name}.Xy12")
                temporary.write_bytes(content)
                shutil.copystat(source / name, temporary)
                temporary.replace(target)
            else:
                with target.open("wb") as file:
                    for at in range(0, len(content), 1 + len(content) // 3):
                        file.write(content[at : at + 1 + len(content) // 3])
                        file.flush()
                        time.sleep(self.rng.uniform(0, 0.15))
            time.sleep(self.rng.uniform(0, 0.3))
        for left in {path.name for path in (self.place / "main").iterdir()} - {*names}:
            (self.place / "main" / left).unlink()

    def copy(self, *, whole: bool = False) -> None:
        """As `cp -r` does."""
        source, began = self.chosen("main"), time.monotonic()
        self.pieces(source, whole=whole)
        self.updated("main", began, digest_of(source / "model.json"))

    def rsync(self) -> None:
        """As `rsync -a` does."""
        self.copy(whole=True)

    def rename(self) -> None:
        """Moved away, and another moved there."""
        source, began, new, old = self.chosen("main"), time.monotonic(), self.place / "new", self.place / "old"
        shutil.copytree(source, new)
        (self.place / "main").rename(old)
        time.sleep(self.rng.uniform(0, 0.4))
        new.rename(self.place / "main")
        self.updated("main", began, digest_of(source / "model.json"))
        shutil.rmtree(old)

    def link(self) -> None:
        """A link is switched."""
        source, began, new = self.chosen("plain"), time.monotonic(), self.place / "next"
        new.symlink_to(source)
        new.replace(self.place / "plain")
        self.updated("plain", began, digest_of(source / "model.json"))

    def put(self, **parts: int) -> None:
        """Replace parts of the store."""
        began, given = time.monotonic(), {}
        if "items" in parts:
            given["items"] = [self.world.items[parts["items"]]]
        if "clicks" in parts:
            given["tracked"] = self.world.tracked(parts["clicks"])
        try:
            version = self.opened.put(**given)
        except StoreError as error:
            if self.redis is None:
                raise
            print("put:", error, file=sys.stderr)
            return
        for name, number in parts.items():
            generation = version[name]
            self.history.generations[generation] = number
            self.updated(name, began, generation)

    def items(self) -> None:
        """Other features of items."""
        self.put(items=self.rng.randrange(self.world.kinds))

    def clicks(self) -> None:
        """Other clicks."""
        self.put(clicks=self.rng.randrange(self.world.kinds))

    def both(self) -> None:
        """Both in one step."""
        self.put(items=self.rng.randrange(self.world.kinds), clicks=self.rng.randrange(self.world.kinds))

    # ---- troubles ----

    def victim(self) -> int | None:
        """A worker that may die."""
        found = [pid for pid in self.workers() if pid != self.kept]
        return self.rng.choice(found) if found else None

    def kill(self) -> None:
        """A worker is killed."""
        if (pid := self.victim()) is not None:
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.trouble("kill", began)

    def kill_all(self) -> None:
        """All workers are killed at once; others take their place, and who asks meanwhile waits."""
        began, pids = time.monotonic(), self.workers()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.history.events["kill_all"] += 1
        self.trouble("kill", began)
        before = self.started
        while self.started < before + len(pids):
            time.sleep(0.1)

    def stop(self) -> None:
        """A worker stands still for a while."""
        pid, began = self.rng.choice(self.workers()), time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        self.rng.choice([self.save, self.items, self.link])()
        time.sleep(1.5)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self.trouble("stop", began)

    def hang(self) -> None:
        """A worker stands still until it is replaced."""
        if (pid := self.victim()) is not None:
            began = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            while pid in self.workers() and time.monotonic() < began + HUNG:
                time.sleep(0.1)
            self.trouble("hang", began)

    def broken(self) -> None:
        """A run folder is damaged, a worker dies meanwhile, and it is mended."""
        name = self.rng.choice([path.name for path in (self.place / "main").iterdir()])
        path = self.place / "main" / name
        content = path.read_bytes()
        how = self.rng.randrange(3)
        if how == 0:
            path.unlink()
        else:
            path.write_bytes(content[: len(content) // 2] if how == 1 else bytes(reversed(content)))
        self.kill()
        time.sleep(self.rng.uniform(0.5, 2.0))
        path.write_bytes(content)

    def full(self) -> None:
        """The disk of the log takes a little more, then nothing."""
        pids, began = self.workers(), time.monotonic()
        sizes = [path.stat().st_size for path in (self.place / "log").glob(".*")]
        for pid in pids:
            with suppress(ProcessLookupError):
                most = max(sizes, default=0) + self.rng.randrange(1, 400)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        time.sleep(1.0)
        if self.rng.random() < 0.5:
            self.kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.trouble("log", began)

    def killed_writer(self) -> None:
        """Who replaces features is killed somewhere on the way."""
        number, began = self.rng.randrange(self.world.kinds), time.monotonic()
        code = (
            "import json, sys; from unskew.serving.store import open_store; "
            "print('go', flush=True); open_store(sys.argv[1]).put(items=[json.load(sys.stdin)])"
        )
        words = [sys.executable, "-c", code, self.store]
        writer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        before = self.opened.view().version.items
        writer.stdout.readline()
        with suppress(BrokenPipeError):
            writer.stdin.write(json.dumps(self.world.items[number]).encode())
            writer.stdin.close()
        time.sleep(self.rng.uniform(0.0, 1.5))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        time.sleep(0.3)  # what is known of Redis is fresh again
        if (now := self.opened.view().version.items) != before:
            self.history.generations[now] = number
            self.updated("items", began, now)

    def redis_killed(self) -> None:
        """Redis dies and comes back with what it had."""
        began = time.monotonic()
        self.redis.kill()
        time.sleep(self.rng.uniform(0.2, 2.0))
        self.rng.choice([self.save, self.kill, self.link, self.items])()
        self.redis.start()
        self.trouble("store", began)

    def redis_stopped(self) -> None:
        """Redis says nothing for a while."""
        began = time.monotonic()
        os.kill(self.redis.process.pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(1.0, 3.0))
        os.kill(self.redis.process.pid, signal.SIGCONT)
        self.trouble("store", began)

    def redis_emptied(self) -> None:
        """Redis comes back with nothing, and is filled again."""
        began = time.monotonic()
        self.redis.kill()
        shutil.rmtree(self.redis.folder)
        self.redis.folder.mkdir()
        self.redis.start()
        time.sleep(0.5)
        self.both()
        self.trouble("store", began)

    def end(self) -> list[str]:
        """End all; what was left that should not be."""
        self.server.send_signal(signal.SIGTERM)
        status = self.server.wait(30)
        self.server.stdout.close()
        self.hearing.join()
        self.server.stderr.close()
        self.opened.close()
        if self.redis is not None:
            self.redis.kill()
            shutil.rmtree(self.redis.folder)
        left = [str(path.relative_to(self.place)) for path in self.place.rglob(".*")]
        left += [
            path.name for path in self.place.iterdir() if path.name not in ("main", "plain", "log", "features")
        ]
        left += [path.name for path in (self.place / "features").glob("*.lmdb")][2:]
        return left if status == 0 else [*left, f"status {status}"]


def events(store: str, rng: random.Random):
    """All that can happen, in one order after another."""
    while True:
        deck = [*UPDATES, *UPDATES, *TROUBLES, "hang", *(REDIS if store == "redis" else ())]
        rng.shuffle(deck)
        yield from deck


def run(
    place: Path, seconds: float, store: str, seed: int, clients: int, pause: float, plan=None, kinds=4
) -> dict:
    """Let it happen: what was found. A plan is the names of events; else they are drawn until the time is over."""
    (place / "world").mkdir(parents=True)
    (place / "serve").mkdir()
    world, rng = make_world(place / "world", seed, kinds), random.Random(seed)
    conductor = Conductor(world, place / "serve", store, seed)
    address = conductor.start()
    threads = [Client(world, address, 1000 * seed + at, pause) for at in range(clients)]
    began = time.monotonic()
    for each in threads:
        each.start()
    for name in events(store, rng) if plan is None else plan:
        if time.monotonic() > began + seconds:
            break
        time.sleep(rng.uniform(0.2, 1.5) if plan is None else 0.1)
        conductor.measure()
        conductor.history.events[name] += 1
        print(f"{time.monotonic() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
        getattr(conductor, name)()
    took, alive = time.monotonic() - began, conductor.kept in conductor.workers()
    if plan is None:
        conductor.kill_all()
    time.sleep(1.0 if plan else 3.0)  # nothing is in trouble any more
    for each in threads:
        each.done.set()
    for each in threads:
        each.join(40)
    records = [record for each in threads for record in each.records]
    last = Client(world, address, seed, 0)
    for kind in ("ids", "named", "plain", "why", "batch") * 2:
        last.ask(kind)
    for each in (*threads, last):
        each.http.close()
    found = check(world, conductor.history, records + last.records)
    found.wrong += [f"in the end: {each.said}" for each in last.records if each.status != 200]
    found.wrong += [] if alive else ["a worker that nobody killed died"]
    left = conductor.end()
    logged = check_log(place / "serve" / "log", records + last.records, found)
    return report(conductor, found, records, took) | logged | {"left over": left}


def report(conductor: Conductor, found: Findings, records: list, took: float) -> dict:
    """The figures."""
    good = sorted(record.ended for record in records if record.kind == "plain" and record.status == 200)
    hung = [each for each in conductor.history.troubles if each.kind == "hang"]
    apart = [b - a for a, b in pairwise(good) if not any(a < each.ended and b > each.began for each in hung)]
    sizes = conductor.sizes
    third = max(1, len(sizes) // 3)
    return {
        "seconds": round(took, 1),
        "requests": len(records),
        "answers": {f"{kind} {status}": count for (kind, status), count in sorted(found.counts.items())},
        "events": dict(sorted(conductor.history.events.items())),
        "updates": {name: len(each) - 1 for name, each in conductor.history.updates.items()},
        "wrong": len(found.wrong),
        "wrong, the first": found.wrong[:10],
        "late": {name: count for name, count in found.late.items() if count},
        "latest": {name: round(each, 2) for name, each in found.latest.items()},
        "503 after the store was back, longest": round(found.back, 2),
        "longest without a right answer": round(max((b - a for a, b in pairwise(good)), default=0.0), 2),
        "longest while no worker stood still": round(max(apart, default=0.0), 2),
        "memory of a worker, MB, first and last third": [
            round(max(size for size, _ in part) / 1024, 1) for part in (sizes[:third], sizes[-third:])
        ],
        "open files, first and last third": [
            max(files for _, files in part) for part in (sizes[:third], sizes[-third:])
        ],
    }


def main() -> None:
    """Print what was found; status 1 where something was wrong."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--store", choices=["lmdb", "redis"], default="redis")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--clients", type=int, default=4)
    asked.add_argument("--pause", type=float, default=0.05, help="seconds between two requests of a client")
    asked.add_argument("--keep", type=Path, help="a new folder for all of it; else a temporary one")
    given = asked.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep or Path(folder)
        found = run(place, given.seconds, given.store, given.seed, given.clients, given.pause)
    print(json.dumps(found, indent=2))
    sys.exit(bool(found["wrong"] or found["left over"]))


if __name__ == "__main__":
    main()
