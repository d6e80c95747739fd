package contextd

import (
	"testing"
	"time"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

func TestTheCursorPassesAnEventOnceAllThatWasMadeOfItWasYielded(t *testing.T) {
	watch := core.NewWatch(&pb.WatchEventsRequest{SessionId: "s", AfterSeq: 6}, core.Options{})
	stream := newStream(t.Context(), nil, watch, nil)
	opened := watch.Start(time.Now())[0].(core.Open)
	message := &pb.Message{MessageId: "m", Role: pb.Role_ROLE_ASSISTANT, Parts: []*pb.Part{Text("Hello.")}}
	committed := &pb.Event_MessageCommitted{MessageCommitted: &pb.MessageCommitted{Message: message}}
	stream.do(watch.OnEvent(opened.Connection, &pb.Event{Seq: 7, Payload: committed}, time.Now()))
	if len(stream.waiting) != 2 {
		t.Fatalf("%d events wait", len(stream.waiting))
	}
	for i, want := range []struct {
		kind   string
		cursor int64
	}{{"text_delta", 6}, {"message_committed", 7}} {
		if got := stream.waiting[i]; got.event.Type() != want.kind || got.cursor != want.cursor {
			t.Errorf("%s waits with cursor %d", got.event.Type(), got.cursor)
		}
	}
}
