"""An agent host: two tools, one turn; nothing is lost or doubled when the connection breaks.

.venv/bin/python host.py localhost:7070 "What is the weather and time in Paris?"
"""
import json, sys, time, uuid
from concurrent.futures import ThreadPoolExecutor

import grpc
from contextd.v1 import message_pb2 as m, turn_pb2 as tn, turn_service_pb2 as ts
from contextd.v1.turn_service_pb2_grpc import TurnServiceStub

CITY = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
TOOLS = {
    "get_weather": ("Current weather of a city.", lambda city: f"18 °C and sunny in {city} (made-up demo data)"),
    "get_time": ("Local time of a city.", lambda city: f"14:05 in {city} (made-up demo data)"),
}
RESUMABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def again(call):
    """Repeats what a lost connection interrupted. Both RPCs used here may be repeated."""
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() not in RESUMABLE:
                raise
            time.sleep(0.2)


def run_tool(stub, session_id, call):
    result = m.ToolResult(call_id=call.call_id)
    try:
        result.parts.add(text=TOOLS[call.tool_name][1](**json.loads(call.arguments_json)))
    except Exception as error:  # the model is told, and may try again
        result.outcome = m.TOOL_OUTCOME_ERROR
        result.parts.add(text=repr(error))
    answer = ts.SubmitToolResultsRequest(session_id=session_id, results=[result])
    again(lambda: stub.SubmitToolResults(answer))


def run_turn(stub, request, handle):
    """Runs one turn over as many connections as it takes; tools run beside it."""
    begun = {}  # calls, with what became of them

    def read(pool):
        for response in stub.ExecuteTurn(request):
            event = response.event
            kind = event.WhichOneof("payload")  # None: newer than this host, to be ignored
            live = kind == "tool_call_requested" and not event.replay
            for pending in [event.tool_call_requested] if live else event.sync.pending_calls:
                if pending.executor == tn.TOOL_EXECUTOR_HOST and pending.call.call_id not in begun:
                    begun[pending.call.call_id] = pool.submit(run_tool, stub, event.session_id, pending.call)
            handle(kind, event)
            request.after_seq = max(request.after_seq, event.seq)  # the same request goes on from here

    with ThreadPoolExecutor() as pool:
        again(lambda: read(pool))
    for answered in begun.values():
        answered.result()  # raises what kept an answer from being taken


class Answer:
    """Prints each word once. A piece says where it belongs, so what was heard before is left out; and an answer that became void
    and is being repeated goes on where the screen stands, unless it says something else."""

    def __init__(self):
        self.message_id, self.parts, self.shown = "", {}, b""

    def hear(self, message_id, index, offset, text):
        if message_id != self.message_id:  # the next message, or the next attempt at this one
            self.message_id, self.parts = message_id, {}
        part = self.parts.get(index, b"")
        if offset <= len(part):
            self.parts[index] = part + text.encode()[len(part) - offset:]
        said = self.said()
        if not self.shown.startswith(said):
            self.show(said)

    def show(self, said):
        if not said.startswith(self.shown):
            print("\n[again]")
            self.shown = b""
        print(said[len(self.shown):].decode(), end="", flush=True)
        self.shown = said

    def said(self):
        return b"".join(self.parts[index] for index in sorted(self.parts))

    def end(self):
        if self.shown:
            self.show(self.said())
            print()
        self.__init__()


def main(target, text):
    request = ts.ExecuteTurnRequest(session_id="trip-2", request_id=str(uuid.uuid4()))
    request.input.parts.add(text=text)
    request.session.system_prompt = "You are a travel guide."  # if trip-2 is new
    for name, (description, _) in TOOLS.items():
        request.tools.host_tools.add(name=name, description=description, input_schema={"json": CITY})
    answer = Answer()

    def handle(kind, event):
        if kind == "text_delta":
            delta = event.text_delta
            answer.hear(delta.message_id, delta.part_index, delta.byte_offset, delta.text)
        elif kind in ("sync", "message_committed"):  # all text so far
            message = event.sync.open_message if kind == "sync" else event.message_committed.message
            for index, part in enumerate(message.parts if message.role == m.ROLE_ASSISTANT else ()):
                answer.hear(message.message_id, index, 0, part.text)
            if kind == "message_committed":
                answer.end()
        elif kind == "tool_call_requested":
            call = event.tool_call_requested.call
            print(f"-> {call.tool_name} {call.arguments_json}")
        elif kind in ("turn_completed", "turn_cancelled", "turn_failed"):
            print(f"[{kind}]", getattr(event, kind).result.total_usage.total_tokens, "tokens")

    channel = grpc.insecure_channel(target, [("grpc.max_reconnect_backoff_ms", 1000)])
    run_turn(TurnServiceStub(channel), request, handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
