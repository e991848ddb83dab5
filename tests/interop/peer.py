"""One Python holder or contender, driven by a test.

It reads one request a line, {"do": NAME, ...}, and writes one answer a line, in
order: {"answer": VALUE} or {"error": EXCEPTION}. What the package tells its
metrics hook comes in between, as {"event": NAME, "with": TEXT}. Standard input is
read by a thread of its own, so that the end of the test ends this process
whatever it is doing; the lock is then left as it is, as by a crash.
"""

import asyncio
import json
import os
import queue
import sys
import threading
import time


def say(**what):
    with saying:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


saying = threading.Lock()
requests = queue.SimpleQueue()


def listen():
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


class Events:
    """Passes on what the package reports, heartbeats left out."""

    def acquired(self, lock_name, *, instance_id):
        say(event="acquired")

    def released(self, lock_name, *, instance_id):
        say(event="released")

    def contended(self, lock_name, *, instance_id):
        say(event="contended")

    def stale_reclaimed(self, lock_name, *, instance_id, previous_holder):
        say(event="reclaimed", **{"with": previous_holder})

    def alert(self, lock_name, *, holder, seconds_since_heartbeat):
        say(event="alert", **{"with": holder})

    def heartbeat_latency(self, lock_name, *, instance_id, seconds):
        pass


class Peer:
    def __init__(self, settings):
        from postgres_mutex import Mutex

        self.dsn = settings.pop("dsn")
        self.settings = settings
        self.mutex = Mutex(self.dsn, metrics=Events(), **settings)
        self.holding = None  # the context manager that was entered

    def create(self):
        self.mutex.create_schema()

    def take(self, blocking=False, timeout=None):
        """Enters acquire() and stays in it when the lock was acquired."""
        scope = self.mutex.acquire(blocking=blocking, timeout=timeout)
        acquired = scope.__enter__()
        if acquired:
            self.holding = scope
        else:
            scope.__exit__(None, None, None)
        return acquired

    def heartbeat(self):
        self.mutex.heartbeat()

    def held(self):
        return self.mutex.held

    def release(self):
        scope, self.holding = self.holding, None
        if scope is None:
            self.mutex.release()
        else:
            scope.__exit__(None, None, None)

    # The counter: read, think, write, on a connection of its own.

    def count(self, rounds, mode):
        return {"dsn": self.count_plain, "pool": self.count_pool, "async": self.count_async}[mode](rounds)

    def increments(self):
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while True:
                n = conn.execute("SELECT n FROM counter").fetchone()[0]
                time.sleep(0.002)
                conn.execute("UPDATE counter SET n = %s", (n + 1,))
                yield

    def count_plain(self, rounds):
        increments = self.increments()
        for _ in range(rounds):
            with self.mutex.acquire(blocking=True) as acquired:
                assert acquired
                next(increments)

    def count_pool(self, rounds):
        from postgres_mutex import Mutex
        from psycopg_pool import ConnectionPool

        with ConnectionPool(self.dsn, min_size=1, max_size=2, open=True) as pool:
            self.mutex = Mutex(pool=pool, metrics=Events(), **self.settings)
            self.count_plain(rounds)

    def count_async(self, rounds):
        async def run():
            increments = self.increments()
            for _ in range(rounds):
                async with self.mutex.acquire_async(blocking=True) as acquired:
                    assert acquired
                    next(increments)
            await self.mutex.close_async()

        asyncio.run(run())

    # The names of the advisory locks.

    def ids(self, names):
        from eventsource.adapters.postgresql.locks import PostgreSQLLockManager

        # As text: not every reader of JSON keeps 63 bits.
        return [str(PostgreSQLLockManager._key_to_lock_id(name)) for name in names]

    def migration_keys(self, tenant, operations):
        import uuid

        from eventsource.ports.locks import migration_lock_key

        keys = [migration_lock_key(uuid.UUID(tenant))]
        return keys + [migration_lock_key(uuid.UUID(tenant), o) for o in operations]


def main():
    threading.Thread(target=listen, daemon=True).start()
    peer = Peer(json.loads(sys.argv[1]))
    say(answer="ready")
    while True:
        request = requests.get()
        do = request.pop("do")
        try:
            say(answer=getattr(peer, do)(**request))
        except Exception as e:
            say(error=type(e).__name__, text=str(e))


main()
