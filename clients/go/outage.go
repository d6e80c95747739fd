package contextd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/contextd/contextd/clients/go/internal/core"
)

// outage is whether the server answers: the first failure is logged, and the first answer after it.
type outage struct {
	log   *slog.Logger
	url   string
	mutex sync.Mutex
	lasts bool
}

// failed notes a call or a stream that failed and is tried again for at most so long.
func (o *outage) failed(problem *core.Problem, left time.Duration) {
	if problem == nil || !problem.MayPass() && !problem.IsBrokenTransport() || !o.set(true) {
		return
	}
	cause := or(problem.Reason, problem.Message, problem.Code.String())
	o.log.Warn("contextd does not answer; trying again", "url", o.url, "cause", cause, "for", left.Round(time.Second))
}

// answered notes that it answered.
func (o *outage) answered() {
	if o.set(false) {
		o.log.Info("contextd answers again", "url", o.url)
	}
}

// set reports whether it changed.
func (o *outage) set(lasts bool) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	changed := o.lasts != lasts
	o.lasts = lasts
	return changed
}

// contact waits for the first connection of this client; a server that was reached once is waited for by each call.
func (t *transport) contact(ctx context.Context) error {
	if t.reached.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, min(contactTimeout-probeTimeout, t.timeout))
	defer cancel()
	for state := t.connection.GetState(); state != connectivity.Ready; state = t.connection.GetState() {
		if state == connectivity.Idle {
			t.connection.Connect()
		}
		if !t.connection.WaitForStateChange(limited, state) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := unreachable(ctx, t.settings); err != nil {
				return err
			}
			break
		}
	}
	t.reached.Store(true)
	return nil
}
