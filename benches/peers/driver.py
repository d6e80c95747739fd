"""What the drivers of in-process peers share: orders come as lines of JSON, and each is answered by one."""

import asyncio
import json
import sys
import time
import uuid


async def serve(run):
    """Obeys until the input ends. `run(id)` runs a turn and gives the seconds until its first text."""
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        if "first" in order:
            firsts = [await run(str(uuid.uuid4())) for _ in range(order["first"])]
            answer = {"firsts": firsts}
        else:
            answer = await load(run, order["clients"], order["seconds"])
        print(json.dumps(answer), flush=True)


async def load(run, clients, seconds):
    """Turns that so many clients get finished, each one after another."""
    begun = time.monotonic()

    async def client():
        turns = 0
        while time.monotonic() - begun < seconds:
            await run(str(uuid.uuid4()))
            turns += 1
        return turns

    turns = await asyncio.gather(*(client() for _ in range(clients)))
    return {"turns": sum(turns), "seconds": time.monotonic() - begun}
