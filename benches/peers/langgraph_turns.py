"""LangGraph: one node that calls a model, with the checkpoints in PostgreSQL. Arguments: model service, database, durability."""

import asyncio
import sys
import time

from driver import serve
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool


async def main(upstream, database, durability):
    model = ChatOpenAI(base_url=upstream, api_key="none", model="bench", streaming=True)

    async def answer(state: MessagesState):
        return {"messages": [await model.ainvoke(state["messages"])]}

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(database, min_size=16, max_size=16, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        builder = StateGraph(MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph = builder.compile(checkpointer=saver)

        async def run(thread):
            begun, first = time.monotonic(), None
            events = graph.astream(
                {"messages": [("user", "Go")]},
                {"configurable": {"thread_id": thread}},
                stream_mode="messages",
                durability=durability,
            )
            async for chunk, _ in events:
                if first is None and chunk.content:
                    first = time.monotonic() - begun
            return first

        await serve(run)


asyncio.run(main(*sys.argv[1:]))
