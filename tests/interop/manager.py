"""One lock manager of eventsource-py, driven by a test.

It speaks the protocol of peer.py: a request a line in, an answer a line out, in
order, and it ends with its standard input. All is done in one event loop, as the
manager wants it.
"""

import asyncio
import json
import os
import sys
import threading

from eventsource.adapters.postgresql.locks import PostgreSQLLockManager
from eventsource.ports.locks import migration_lock_key
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def listen(loop, requests):
    for line in sys.stdin:
        loop.call_soon_threadsafe(requests.put_nowait, json.loads(line))
    os._exit(0)


def told(info):
    """What LockInfo says; the id as text, since not every reader of JSON keeps 63 bits."""
    if info is None:
        return None
    return {
        "key": info.key,
        "id": str(info.lock_id),
        "holder": info.holder_id,
        "acquired_at": info.acquired_at.isoformat(),
    }


class Manager:
    def __init__(self, url, holder):
        self.engine = create_async_engine(url)
        sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self.manager = PostgreSQLLockManager(sessions, holder_id=holder)
        self.scopes = {}  # by key, the context managers that were entered

    async def acquire(self, key, **how):
        """Enters acquire() and stays in it."""
        scope = self.manager.acquire(key, **how)
        info = await scope.__aenter__()
        self.scopes[key] = scope
        return told(info)

    async def leave(self, key):
        await self.scopes.pop(key).__aexit__(None, None, None)

    async def try_acquire(self, key):
        return told(await self.manager.try_acquire(key))

    async def release(self, key):
        await self.manager.release(key)

    async def release_all(self):
        return await self.manager.release_all()

    async def is_held(self, key):
        return await self.manager.is_held(key)

    async def migration_key(self, tenant, operation):
        import uuid

        return migration_lock_key(uuid.UUID(tenant), operation)

    async def count(self, key, rounds, **how):
        """Read, think, write, on a connection of its own."""
        async with self.engine.connect() as conn:
            conn = await conn.execution_options(isolation_level="AUTOCOMMIT")
            for _ in range(rounds):
                async with self.manager.acquire(key, **how):
                    n = (await conn.execute(text("SELECT n FROM counter"))).scalar()
                    await asyncio.sleep(0.002)
                    await conn.execute(text("UPDATE counter SET n = :n"), {"n": n + 1})
        return rounds


async def main():
    requests = asyncio.Queue()
    threading.Thread(target=listen, args=(asyncio.get_running_loop(), requests), daemon=True).start()
    manager = Manager(**json.loads(sys.argv[1]))
    say(answer="ready")
    while True:
        request = await requests.get()
        do = request.pop("do")
        try:
            say(answer=await getattr(manager, do)(**request))
        except Exception as e:
            say(error=type(e).__name__, text=str(e))


asyncio.run(main())
