"""Text is yielded once, in pure form."""

from __future__ import annotations

import random

from contextd._core.text import Answer, Piece


def shown(pieces: list[Piece]) -> str:
    """What a caller has on its screen."""
    text = ""
    for piece in pieces:
        text = piece.text if piece.reset else text + piece.text
    return text


def test_a_piece_that_was_seen_is_left_out() -> None:
    answer = Answer()
    assert answer.delta("m", 0, 0, "one ") == [Piece("m", "one ")]
    assert answer.delta("m", 0, 0, "one ") == []
    assert answer.delta("m", 0, 2, "e two") == [Piece("m", "two")]


def test_the_committed_message_brings_what_is_missing() -> None:
    answer = Answer()
    answer.delta("m", 0, 0, "one ")
    assert answer.delta("m", 0, 9, "lost its place") == []
    assert answer.commit("m", [(0, "one two")]) == [Piece("m", "two")]


def test_a_second_attempt_that_says_the_same_is_held_back() -> None:
    answer = Answer()
    answer.delta("m1", 0, 0, "one two ")
    assert answer.delta("m2", 0, 0, "one ") == []
    assert answer.delta("m2", 0, 4, "two three") == [Piece("m2", "three")]


def test_a_second_attempt_that_says_something_else_begins_anew() -> None:
    answer = Answer()
    answer.delta("m1", 0, 0, "one two ")
    assert answer.delta("m2", 0, 0, "uno ") == [Piece("m2", "uno ", reset=True)]


def test_a_second_attempt_that_says_nothing_voids_the_first() -> None:
    answer = Answer()
    answer.delta("m1", 0, 0, "one two ")
    assert answer.commit("m2", []) == [Piece("m2", "", reset=True)]
    assert answer.commit("m3", [(0, "next")]) == [Piece("m3", "next")]


def test_offsets_are_bytes() -> None:
    answer = Answer()
    answer.delta("m", 0, 0, "18 °C ")
    assert answer.delta("m", 0, len("18 °C ".encode()), "ist schön") == [Piece("m", "ist schön")]


def test_whatever_repeats_and_attempts_come_the_screen_ends_with_the_committed_text() -> None:
    chance = random.Random(18)
    for _ in range(2_000):
        final = "".join(chance.choice("abü ") for _ in range(12))
        answer, pieces, same = Answer(), [], True
        for attempt in range(chance.randint(1, 3)):
            said = final if chance.random() < 0.7 else "x" + final[::-1]
            same = same and said == final
            data, at = said.encode(), 0
            while at < len(data) and chance.random() < 0.85:
                start = chance.randint(0, at)
                end = chance.randint(at, len(data))
                try:
                    text = data[start:end].decode()
                except UnicodeDecodeError:
                    continue
                pieces += answer.delta(f"m{attempt}", 0, start, text)
                at = max(at, end)
        pieces += answer.commit("last", [(0, final)])
        assert shown(pieces) == final
        if same:
            assert not any(piece.reset for piece in pieces)
