package contextd

import (
	"context"
	_ "embed" // service_config.json
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
	"github.com/contextd/contextd/clients/go/internal/core"
)

const (
	maxMessageBytes = 64 << 20
	pageSize        = 100
)

// What the clients of all languages share: a copy of clients/service_config.json, which `client check` compares.
//
//go:embed service_config.json
var sharedConfig []byte

type shared struct {
	ServiceConfig json.RawMessage `json:"serviceConfig"`
	Keepalive     struct {
		TimeMs, TimeoutMs int64
	} `json:"keepalive"`
	Reconnect struct {
		InitialBackoffMs, MaxBackoffMs, ConnectTimeoutMs int64
	} `json:"reconnect"`
}

func ms(number int64) time.Duration { return time.Duration(number) * time.Millisecond }

// transport is the connections of a client.
type transport struct {
	connection *grpc.ClientConn
	settings   *settings
	outage     *outage
	reached    atomic.Bool // the first connection came about
	timeout    time.Duration
	turns      pb.TurnServiceClient
	sessions   pb.SessionServiceClient
	queue      pb.QueueServiceClient
	contexts   pb.ContextServiceClient
	models     pb.ModelServiceClient
	blobs      pb.BlobServiceClient
}

func dial(settings *settings) (*transport, error) {
	var common shared
	if err := json.Unmarshal(sharedConfig, &common); err != nil {
		return nil, fmt.Errorf("contextd: service_config.json: %w", err)
	}
	secure := insecure.NewCredentials()
	if settings.tls {
		config, err := settings.tlsConfig()
		if err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDefaultServiceConfig(string(common.ServiceConfig)),
		grpc.WithDisableServiceConfig(), // one from DNS would take its place
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: ms(common.Keepalive.TimeMs), Timeout: ms(common.Keepalive.TimeoutMs)}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  ms(common.Reconnect.InitialBackoffMs),
				MaxDelay:   ms(common.Reconnect.MaxBackoffMs),
				Multiplier: 2,
				Jitter:     0.2,
			},
			MinConnectTimeout: ms(common.Reconnect.ConnectTimeoutMs),
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithUserAgent("contextd-go/" + Version),
		grpc.WithResolvers(hostList{settings.hosts}),
	}
	if settings.apiKey != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(settings.apiKey)))
	}
	options = append(options, settings.dialOptions...)
	target := "contextd:///" + strings.Join(settings.hosts, ",")
	if settings.balanced {
		target = "dns:///" + settings.hosts[0]
	}
	connection, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("contextd: %w", err)
	}
	return &transport{
		connection: connection,
		settings:   settings,
		outage:     &outage{log: settings.log, url: settings.url},
		timeout:    settings.timeout,
		turns:      pb.NewTurnServiceClient(connection),
		sessions:   pb.NewSessionServiceClient(connection),
		queue:      pb.NewQueueServiceClient(connection),
		contexts:   pb.NewContextServiceClient(connection),
		models:     pb.NewModelServiceClient(connection),
		blobs:      pb.NewBlobServiceClient(connection),
	}, nil
}

// bearer is an API key. It goes over plain text too: to a server on this machine, or one whose TLS ends before it.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return false }

// hostList resolves to a fixed list of hosts, which round_robin uses in turn.
type hostList struct{ hosts []string }

func (h hostList) Scheme() string { return "contextd" }

func (h hostList) OverrideAuthority(resolver.Target) string { return h.hosts[0] }

func (h hostList) Build(_ resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for _, host := range h.hosts {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			return nil, err
		}
		address := resolver.Address{Addr: host, ServerName: name}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	return h, connection.UpdateState(state)
}

func (h hostList) ResolveNow(resolver.ResolveNowOptions) {}
func (h hostList) Close()                                {}

// --- Calls --------------------------------------------------------------------------------------------

// again makes an attempt, and another one where that may help, for as long as the limit and the context
// allow. Each call may be repeated: reads by nature, writes by their request_id.
func again[T any](ctx context.Context, t *transport, limit time.Duration, attempt func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := t.contact(ctx); err != nil {
		var none T
		return none, err
	}
	var known *core.Problem
	for failures := 0; ; failures++ {
		made, err := attempt(limited)
		if err == nil {
			t.outage.answered()
			return made, nil
		}
		if ctx.Err() != nil {
			return made, ctx.Err()
		}
		problem := core.ProblemOf(err)
		if problem.Reason != "" || problem.Code != codes.DeadlineExceeded {
			known = problem // says more than that the time is up
		} else if known == nil {
			known = problem
		}
		wait := core.Delay(failures, problem.RetryAfter, rand.Float64())
		ends, _ := limited.Deadline()
		if !(problem.MayPass() || problem.Reason == string(RateLimited)) || time.Until(ends) <= wait {
			return made, errorOf(known)
		}
		t.outage.failed(problem, time.Until(ends))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return made, ctx.Err()
		}
	}
}

// call makes a unary call.
func call[Request, Response any](
	ctx context.Context, t *transport, method func(context.Context, *Request, ...grpc.CallOption) (*Response, error), request *Request,
) (*Response, error) {
	return again(ctx, t, t.timeout, func(ctx context.Context) (*Response, error) { return method(ctx, request) })
}

// pages are the items of a list, read page by page as they are used.
func pages[Item any](read func(token string) ([]Item, string, error)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for token := ""; ; {
			items, next, err := read(token)
			if err != nil {
				var none Item
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}
