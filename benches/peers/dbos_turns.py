"""DBOS: a workflow of three steps, over a table of messages. Arguments: model service, database."""

import asyncio
import sys
import time

from dbos import DBOS, DBOSConfig, SetWorkflowID
from driver import serve
from openai import AsyncOpenAI
from psycopg_pool import AsyncConnectionPool

firsts = {}


async def main(upstream, database):
    model = AsyncOpenAI(base_url=upstream, api_key="none")
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": database,
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    pool = AsyncConnectionPool(database, min_size=16, max_size=16, open=False)
    await pool.open()
    async with pool.connection() as connection:
        await connection.execute("create table if not exists messages (session text, role text, content text)")

    async def store(session, role, content):
        async with pool.connection() as connection:
            await connection.execute("insert into messages values (%s, %s, %s)", (session, role, content))

    @DBOS.step()
    async def take(session):
        await store(session, "user", "Go")

    @DBOS.step()
    async def call(session, begun):
        answer = ""
        messages = [{"role": "user", "content": "Go"}]
        async for chunk in await model.chat.completions.create(model="bench", messages=messages, stream=True):
            text = chunk.choices[0].delta.content if chunk.choices else None
            if text:
                firsts.setdefault(session, time.monotonic() - begun)
                answer += text
        return answer

    @DBOS.step()
    async def keep(session, answer):
        await store(session, "assistant", answer)

    @DBOS.workflow()
    async def turn(session, begun):
        await take(session)
        await keep(session, await call(session, begun))

    DBOS.launch()

    async def run(session):
        with SetWorkflowID(session):
            await turn(session, time.monotonic())
        return firsts.pop(session)

    await serve(run)


asyncio.run(main(*sys.argv[1:]))
