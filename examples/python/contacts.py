"""An agent that reads mail and notes who wrote about what, with a model that is too small to be trusted.

python contacts.py http://localhost:7070 [MODEL]

The server makes the model answer in JSON of a schema. Each value must then stand in the mail; if one does not, the
agent says so in the same session, and after three answers the mail is left for a person.
"""

import json
import sys

from contextd import Contextd, Session

MAILS = (
    "Hello, I ordered a blue kettle last week and it arrived broken. Please send my money back. Anna Berg",
    "The settings page of your app is empty on my new phone. Regards, Tom Hill",
    "Do you deliver the green armchair to Norway, and what does it cost? Thanks, Ingrid Dahl",
    "Please cancel the order of the oak table, I found one nearby. Kind regards, Peter Novak",
    "Can I get the invoice for my lamp once more? It was sent to my old address. Maria Rossi",
)
FIELDS = {"sender": {"type": "string", "maxLength": 30}, "thing": {"type": "string", "maxLength": 30}}
SCHEMA = {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False}
INSTRUCTIONS = (
    "You read mails to a shop and note who wrote and about which thing, in words of the mail. "
    'The mail "My red bike has no bell. Best, Ole Lund" gives {"sender": "Ole Lund", "thing": "red bike"}.'
)
ANSWERS = 3


def read(session: Session, mail: str) -> dict[str, str] | None:
    """What the mail says, or `None` if no answer holds against it."""
    ask = f'The mail "{mail}" gives'
    for _ in range(ANSWERS):
        noted: dict[str, str] = json.loads(session.run_text(ask))
        invented = [field for field in FIELDS if noted[field].lower() not in mail.lower()]
        if not invented:
            return noted
        print(f"  not in the mail: {', '.join(noted[field] for field in invented)}")
        ask = f"The {' and the '.join(invented)} must be words of the mail. Copy them from it."
    return None


def main(server: str, model: str | None = None) -> None:
    """Reads each mail in a session of its own."""
    with Contextd(server) as client:
        for mail in MAILS:
            session = client.session(
                model=model,
                instructions=INSTRUCTIONS,
                generation={"response_schema": SCHEMA, "temperature": 0, "seed": 1},
            )
            noted = read(session, mail)
            print(f"{noted['sender']}: {noted['thing']}" if noted else f"for a person: {mail}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
