package core

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// screen is what a caller has on its screen.
func screen(pieces []Piece) string {
	var text string
	for _, piece := range pieces {
		if piece.Reset {
			text = ""
		}
		text += piece.Text
	}
	return text
}

func expect(t *testing.T, got []Piece, want ...Piece) {
	t.Helper()
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, not %v", got, want)
	}
}

func TestAPieceThatWasSeenIsLeftOut(t *testing.T) {
	var w words
	expect(t, w.delta("m", 0, 0, "one "), Piece{"m", "one ", false})
	expect(t, w.delta("m", 0, 0, "one "))
	expect(t, w.delta("m", 0, 2, "e two"), Piece{"m", "two", false})
}

func TestTheCommittedMessageBringsWhatIsMissing(t *testing.T) {
	var w words
	w.delta("m", 0, 0, "one ")
	expect(t, w.delta("m", 0, 9, "lost its place"))
	expect(t, w.commit("m", []part{{0, "one two"}}), Piece{"m", "two", false})
}

func TestASecondAttemptThatSaysTheSameIsHeldBack(t *testing.T) {
	var w words
	w.delta("m1", 0, 0, "one two ")
	expect(t, w.delta("m2", 0, 0, "one "))
	expect(t, w.delta("m2", 0, 4, "two three"), Piece{"m2", "three", false})
}

func TestASecondAttemptThatSaysSomethingElseBeginsAnew(t *testing.T) {
	var w words
	w.delta("m1", 0, 0, "one two ")
	expect(t, w.delta("m2", 0, 0, "uno "), Piece{"m2", "uno ", true})
}

func TestASecondAttemptThatSaysNothingVoidsTheFirst(t *testing.T) {
	var w words
	w.delta("m1", 0, 0, "one two ")
	expect(t, w.commit("m2", nil), Piece{"m2", "", true})
	expect(t, w.commit("m3", []part{{0, "next"}}), Piece{"m3", "next", false})
}

func TestOffsetsAreBytes(t *testing.T) {
	var w words
	w.delta("m", 0, 0, "18 °C ")
	expect(t, w.delta("m", 0, len("18 °C "), "ist schön"), Piece{"m", "ist schön", false})
}

func TestAnEarlierPartThatGrowsBeginsAnew(t *testing.T) {
	var w words
	w.delta("m", 0, 0, "one ")
	expect(t, w.delta("m", 1, 0, "three"), Piece{"m", "three", false})
	expect(t, w.delta("m", 0, 4, "two "), Piece{"m", "one two three", true})
}

func TestALongAnswerIsReadInTime(t *testing.T) {
	var w words
	for at := 0; at < 4_000_000; at += 4 {
		w.delta("m", 0, at, "four")
	}
	if len(w.shown) != 4_000_000 {
		t.Errorf("%d bytes are shown", len(w.shown))
	}
}

func TestWhateverRepeatsAndAttemptsComeTheScreenEndsWithTheCommittedText(t *testing.T) {
	chance := rand.New(rand.NewPCG(18, 18))
	for range 2000 {
		var final strings.Builder
		for range 12 {
			final.WriteRune([]rune("abü ")[chance.IntN(4)])
		}
		var w words
		var pieces []Piece
		same := true
		for attempt := range 1 + chance.IntN(3) {
			said := final.String()
			if chance.Float64() > 0.7 {
				said, same = "x"+said[:1], false
			}
			for at := 0; at < len(said) && chance.Float64() < 0.85; {
				start, end := chance.IntN(at+1), at+chance.IntN(len(said)-at+1)
				if !utf8.ValidString(said[start:end]) || !utf8.ValidString(said[:end]) {
					continue
				}
				id := "m" + string(rune('0'+attempt))
				if chance.Float64() < 0.2 {
					pieces = append(pieces, w.whole(id, []part{{0, said[:end]}})...)
				} else {
					pieces = append(pieces, w.delta(id, 0, start, said[start:end])...)
				}
				at = max(at, end)
			}
		}
		pieces = append(pieces, w.commit("last", []part{{0, final.String()}})...)
		if screen(pieces) != final.String() {
			t.Fatalf("%q is on the screen, not %q", screen(pieces), final.String())
		}
		for _, piece := range pieces {
			if same && piece.Reset {
				t.Fatalf("a reset, although all attempts said %q", final.String())
			}
		}
	}
}
