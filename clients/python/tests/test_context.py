"""The context, the transcript, and hosts with a loop of their own."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Server

from contextd import AsyncContextd, Contextd, errors, events, tool, vendors
from contextd.v1 import context_pb2


def get_weather(town: str) -> str:
    """Tells the weather of a town."""
    return f"Sunny in {town}."


def test_a_session_that_is_full_is_compacted_by_itself(client: Contextd) -> None:
    session = client.session(model="scripted/small")
    compactions = 0
    for number in range(25):
        for event in session.run(f"Question {number}: " + "please remember this " * 15):
            compactions += isinstance(event, events.CompactionCompleted)
    assert compactions
    assert session.stats().used.tokens < 3000
    assert len(list(session.messages())) > len(list(session.messages(view="live")))
    assert next(session.compactions()).state == context_pb2.COMPACTION_STATE_APPLIED


def test_compact_makes_the_context_smaller_now(client: Contextd) -> None:
    session = client.session(model="scripted/small")
    for number in range(4):
        session.run(f"Question {number}").result()
    before = session.stats().used.tokens
    compaction = session.compact(strategy="truncation", target_tokens=before - 50)
    assert compaction.state == context_pb2.COMPACTION_STATE_APPLIED
    assert session.stats().used.tokens < before
    session.revert_compaction(compaction.compaction_id)
    assert abs(session.stats().used.tokens - before) < 10  # not measured any more
    assert "Context of scripted/small" in session.stats_text()


def test_a_fork_goes_its_own_way(client: Contextd) -> None:
    session = client.session(model="scripted/echo")
    session.run("one").result()
    fork = session.fork()
    fork.run("two").result()
    assert [message.text for message in fork.messages() if message.role == "USER"] == ["one", "two"]
    assert [message.text for message in session.messages() if message.role == "USER"] == ["one"]


def test_lists_are_read_page_by_page(client: Contextd) -> None:
    session = client.session()
    session.append([f"message {number}" for number in range(250)])
    texts = [message.text for message in session.messages()]
    assert texts == [f"message {number}" for number in range(250)]
    newest = [message.text for message in session.messages(newest_first=True, limit=2)]
    assert newest == ["message 249", "message 248"]


def test_the_queue_can_be_read_and_cleared(client: Contextd) -> None:
    session = client.session()
    first = session.send("one").queued_message
    session.send("two")
    assert [each.message.parts[0].text for each in session.queued()] == ["one", "two"]
    assert session.withdraw(first.queued_message_id).queued_message_id == first.queued_message_id
    assert len(session.clear_queue()) == 1
    assert list(session.queued()) == []


def test_a_session_can_be_deleted(client: Contextd) -> None:
    session = client.session("to-delete")
    assert "to-delete" in [each.session_id for each in client.sessions()]
    session.delete()
    with pytest.raises(errors.SessionNotFoundError):
        session.refresh()


def test_update_changes_what_is_given(client: Contextd) -> None:
    session = client.session(instructions="One.", metadata={"owner": "me"})
    session.update(instructions="Two.", tools=[get_weather])
    raw = session.refresh()
    assert (raw.system_prompt, dict(raw.metadata)) == ("Two.", {"owner": "me"})
    assert raw.tools.host_tools[0].name == "get_weather"


def test_tokens_are_counted(client: Contextd) -> None:
    assert client.count_tokens("hello", model="scripted/echo") > 0
    session = client.session(model="scripted/echo")
    assert session.count_tokens("hello " * 100) > session.count_tokens()
    assert "scripted/echo" in [model.model for model in client.models()]


def test_large_content_goes_through_a_blob(client: Contextd) -> None:
    content = bytes(range(256)) * 8192
    media = client.put_blob(content, "application/octet-stream")
    assert media.blob_id is not None
    assert client.get_blob(media.blob_id) == content


def completion(message: dict[str, Any], prompt: int, answer: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}}], "usage": usage}


def test_a_host_with_its_own_loop_on_chat_completions(client: Contextd) -> None:
    session = client.session(model="scripted/echo", instructions="Be brief.", tools=[get_weather])
    session.append(["What is the weather in Jena?"])

    prompt = session.prepare(format="openai")
    assert [message["role"] for message in prompt.request["messages"]] == ["system", "user"]
    assert prompt.request["tools"][0]["function"]["name"] == "get_weather"
    assert "stream" not in prompt.request
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"town":"Jena"}'}}
    session.record(completion({"content": None, "tool_calls": [call]}, 58, 15), prompt)

    result = {"role": "tool", "tool_call_id": "call_1", "content": get_weather("Jena")}
    session.append([result], format="openai")
    prompt = session.prepare(format="openai")
    assert [message["role"] for message in prompt.request["messages"]] == ["system", "user", "assistant", "tool"]
    session.record(completion({"content": "It is sunny in Jena."}, 94, 13), prompt)

    assert [message.text for message in session.messages()][-1] == "It is sunny in Jena."
    stats = session.stats()
    assert (stats.used.tokens, stats.size_basis.last_input_tokens) == (107, 94)


def test_a_host_with_its_own_loop_on_anthropic_messages(client: Contextd) -> None:
    session = client.session(model="scripted/echo", instructions="Be brief.", tools=[tool(get_weather)])
    session.append(["What is the weather in Jena?"])
    prompt = session.prepare(format="anthropic", stream=True)
    assert prompt.request["stream"] is True
    assert prompt.request["messages"][0]["role"] == "user"
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"town": "Jena"}}
    usage = {"input_tokens": 20, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 8, "output_tokens": 15}
    session.record({"role": "assistant", "content": [call], "usage": usage}, prompt)
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny."}
    session.append([{"role": "user", "content": [answer]}], format="anthropic")
    assert session.stats().size_basis.last_input_tokens == 58
    assert session.prepare(format="anthropic").request["messages"][-1]["content"][0]["type"] == "tool_result"


@pytest.mark.parametrize(
    ("format", "response", "text"),
    [
        (
            "openai_responses",
            {
                "output": [
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}
                ],
                "usage": {"input_tokens": 12, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}},
            },
            "Sunny.",
        ),
        (
            "gemini",
            {
                "candidates": [{"content": {"role": "model", "parts": [{"text": "Sunny."}]}}],
                "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3},
            },
            "Sunny.",
        ),
    ],
)
def test_answers_of_other_vendors_are_recorded(
    client: Contextd, format: Any, response: dict[str, Any], text: str
) -> None:
    session = client.session(model="scripted/echo")
    session.append(["Weather?"])
    session.record(response, session.prepare(format=format))
    assert [message.text for message in session.messages()][-1] == text
    assert session.stats().size_basis.last_input_tokens == 12


def test_objects_of_an_sdk_are_read_as_their_data_is() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Response", choices=(list[Any], ...), usage=(dict[str, Any], ...), other=(Any, None))
    plain = completion({"content": "Hi."}, 9, 2)
    plain["usage"]["prompt_tokens_details"] = {"cached_tokens": 4, "cache_write_tokens": 3}
    answer = vendors.answer_of("openai", model(**plain))
    assert answer == vendors.answer_of("openai", plain)
    assert answer.usage is not None
    assert (answer.usage.cache_read_tokens, answer.usage.cache_write_tokens) == (4, 3)


def test_an_answer_to_an_old_prompt_is_refused(client: Contextd) -> None:
    session = client.session(model="scripted/echo")
    session.append(["One?"])
    prompt = session.prepare()
    session.append(["Another one?"])
    with pytest.raises(errors.ContextChangedError):
        session.record(completion({"content": "Late."}, 1, 1), prompt)


async def test_the_loop_of_asyncio(server: Server) -> None:
    async with AsyncContextd(server.url) as client:
        session = await client.session(model="scripted/echo")
        await session.append(["Hello?"])
        prompt = await session.prepare()
        await session.record(completion({"content": "Hi."}, 9, 2), prompt)
        assert [message.text async for message in session.messages()] == ["Hello?", "Hi."]
        assert (await session.stats()).used.tokens == 11
        fork = await session.fork()
        await fork.send("more")
        assert [each.message.parts[0].text async for each in fork.queued()] == ["more"]
        assert [event.type async for event in await fork.watch(after_seq=0, follow=False)] == []
