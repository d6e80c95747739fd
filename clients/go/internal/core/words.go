package core

import (
	"bytes"
	"slices"
	"strings"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

// Piece is text to append to what the caller has.
type Piece struct {
	MessageID string
	Text      string
	// Reset reports that what was yielded for this message before is void.
	Reset bool
}

// part is the text of one part of a message.
type part struct {
	index int32
	text  string
}

// words is the text of the open message as the caller has it, and as the server has it.
//
// Pieces say which part of which message they belong to, and at which byte: what was seen before is left out. When an
// answer becomes void and is written again, the second one is held back for as long as it says what the first one
// said; if it says something else, a reset goes before it.
type words struct {
	messageID string
	parts     map[int32][]byte
	shown     []byte
	// last is the highest index of the parts, and even says that all of them are shown: then more of the last part is
	// simply appended.
	last int32
	even bool
}

// delta takes a piece that came.
func (w *words) delta(messageID string, index int32, offset int, text string) []Piece {
	w.open(messageID)
	fresh := w.put(index, offset, text)
	switch {
	case fresh == "":
		return nil
	case w.even && index == w.last:
		w.shown = append(w.shown, fresh...)
		return []Piece{{MessageID: messageID, Text: fresh}}
	}
	return w.more()
}

// whole takes all text so far, as `sync` has it.
func (w *words) whole(messageID string, texts []part) []Piece {
	w.open(messageID)
	for _, each := range texts {
		w.put(each.index, 0, each.text)
	}
	return w.more()
}

// commit takes the final message. What is left of it is given, and the next message begins.
func (w *words) commit(messageID string, texts []part) []Piece {
	w.messageID, w.parts = messageID, make(map[int32][]byte, len(texts))
	for _, each := range texts {
		w.parts[each.index] = []byte(each.text)
	}
	pieces := w.show(w.said())
	*w = words{}
	return pieces
}

// open begins the next message, or the next attempt at this one.
func (w *words) open(messageID string) {
	if messageID != w.messageID || w.parts == nil {
		w.messageID, w.parts = messageID, map[int32][]byte{}
		w.last, w.even = 0, len(w.shown) == 0
	}
}

// put adds what is new, and gives it. Where bytes are missing before it, the committed message brings them.
func (w *words) put(index int32, offset int, text string) string {
	held := w.parts[index]
	if offset < 0 || offset > len(held) || offset+len(text) <= len(held) {
		return ""
	}
	fresh := text[len(held)-offset:]
	w.parts[index] = append(held, fresh...)
	w.last = max(w.last, index)
	return fresh
}

func (w *words) said() []byte {
	indexes := make([]int32, 0, len(w.parts))
	for index := range w.parts {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	var said []byte
	for _, index := range indexes {
		said = append(said, w.parts[index]...)
	}
	return said
}

// more shows what was said, unless it is the beginning of what was shown already.
func (w *words) more() []Piece {
	said := w.said()
	if bytes.HasPrefix(w.shown, said) {
		w.even = len(said) == len(w.shown)
		return nil
	}
	return w.show(said)
}

func (w *words) show(said []byte) []Piece {
	reset := !bytes.HasPrefix(said, w.shown)
	fresh := said
	if !reset {
		fresh = said[len(w.shown):]
	}
	w.shown, w.even = said, true
	if len(fresh) == 0 && !reset {
		return nil
	}
	return []Piece{{MessageID: w.messageID, Text: string(fresh), Reset: reset}}
}

// TextOf is what a message says to people: its texts and refusals.
func TextOf(parts []*pb.Part) string {
	var text strings.Builder
	for _, each := range parts {
		text.WriteString(each.GetText())
		text.WriteString(each.GetRefusal())
	}
	return text.String()
}

func texts(message *pb.Message) []part {
	var found []part
	for i, each := range message.GetParts() {
		if text := each.GetText() + each.GetRefusal(); text != "" {
			found = append(found, part{int32(i), text})
		}
	}
	return found
}

func reasonings(message *pb.Message) []part {
	var found []part
	for i, each := range message.GetParts() {
		if reasoning := each.GetReasoning(); reasoning != nil {
			found = append(found, part{int32(i), reasoning.GetText()})
		}
	}
	return found
}
