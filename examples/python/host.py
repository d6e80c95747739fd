"""An agent with two tools that survives restarts of the server, and of itself: it goes on with the turn it left.

python host.py http://localhost:7070 "What is the weather and time in Paris?" ["said while it works"]
"""

import sys

from contextd import Contextd, Run, Session, events


def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"18 °C and sunny in {city} (made-up demo data)"


def get_time(city: str) -> str:
    """Local time of a city."""
    return f"14:05 in {city} (made-up demo data)"


def show(session: Session, run: Run, meanwhile: str = "") -> None:
    """Prints a turn as it goes on."""
    for event in run:
        if isinstance(event, events.TextDelta):
            print(event.text, end="", flush=True)
        elif isinstance(event, events.TextReset):  # the model was asked again, and answers otherwise
            print("\n[again]")
        elif isinstance(event, events.MessageCommitted) and event.message.role == "ASSISTANT":
            print()
        elif isinstance(event, events.ToolCallRequested):
            print(f"-> {event.name} {event.arguments_json}")
            if meanwhile:
                session.send(meanwhile)  # taken at the next step
                meanwhile = ""
    print("[turn_completed]", run.result().usage.total_tokens, "tokens")


def main(server: str, text: str, meanwhile: str = "") -> None:
    """Goes on with the turn that was left, then runs another one."""
    with Contextd(server if "://" in server else f"http://{server}") as client:
        session = client.session("trip-2", instructions="You are a travel guide.", tools=[get_weather, get_time])
        if left := session.resume():
            show(session, left)
        show(session, session.run(text), meanwhile)


if __name__ == "__main__":
    main(*sys.argv[1:])
