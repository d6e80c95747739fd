// An agent that reads mail and notes who wrote about what, with a model that is too small to be trusted: each value of
// its answer must stand in the mail. If one does not, the agent says so in the same session; after three answers the
// mail is left for a person.
import { Contextd, type Session } from "@contextd/client";

const mails = [
  "Hello, I ordered a blue kettle last week and it arrived broken. Please send my money back. Anna Berg",
  "The settings page of your app is empty on my new phone. Regards, Tom Hill",
  "Do you deliver the green armchair to Norway, and what does it cost? Thanks, Ingrid Dahl",
  "Please cancel the order of the oak table, I found one nearby. Kind regards, Peter Novak",
  "Can I get the invoice for my lamp once more? It was sent to my old address. Maria Rossi",
];
const text = { type: "string", maxLength: 30 };
const schema = {
  type: "object",
  properties: { sender: text, thing: text },
  required: ["sender", "thing"],
  additionalProperties: false,
};
const instructions =
  "You read mails to a shop and note who wrote and about which thing, in words of the mail. " +
  'The mail "My red bike has no bell. Best, Ole Lund" gives {"sender": "Ole Lund", "thing": "red bike"}.';
const generation = {
  temperature: 0,
  seed: 1,
  responseFormat: { jsonSchema: { schema: { $case: "json" as const, value: JSON.stringify(schema) } } },
};
const answers = 3;

interface Noted {
  sender: string;
  thing: string;
}

async function read(session: Session, mail: string): Promise<Noted | undefined> {
  let ask = `The mail "${mail}" gives`;
  for (let answer = 0; answer < answers; answer++) {
    const noted: Noted = JSON.parse((await session.run(ask).result()).text);
    const fields = ["sender", "thing"] as const;
    const invented = fields.filter((field) => !mail.toLowerCase().includes(noted[field].toLowerCase()));
    if (invented.length === 0) return noted;
    console.log(`  not in the mail: ${invented.map((field) => noted[field]).join(", ")}`);
    ask = `The ${invented.join(" and the ")} must be words of the mail. Copy them from it.`;
  }
  return undefined;
}

await using client = new Contextd();
for (const mail of mails) {
  const session = await client.session({ model: process.argv[2], instructions, generation });
  const noted = await read(session, mail);
  console.log(noted ? `${noted.sender}: ${noted.thing}` : `for a person: ${mail}`);
}
