package contextd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/contextd/contextd/clients/go/internal/core"
)

// outage tracks an outage: its first failure and the first response after it are logged.
type outage struct {
	log   *slog.Logger
	url   string
	mutex sync.Mutex
	lasts bool
}

// failed records the failure of a call or stream that is retried for at most this time.
func (o *outage) failed(problem *core.Problem, left time.Duration) {
	if problem == nil || !problem.MayPass() && !problem.IsBrokenTransport() || !o.set(true) {
		return
	}
	cause := or(problem.Reason, problem.Message, problem.Code.String())
	o.log.Warn("contextd does not answer; trying again", "url", o.url, "cause", cause, "for", left.Round(time.Second))
}

// answered records a response of the server.
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

// contact waits for the first connection of this client. Later outages are handled by the retries of each call.
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
