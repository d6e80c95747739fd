package contextd

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/contextd/contextd/clients/go/contextdv1"
)

const chunkBytes = 256 << 10

// Client is a connection to contextd. It is safe for concurrent use.
type Client struct {
	transport *transport
	settings  *settings
	host      *host
	ctx       context.Context // ends with the client
	end       context.CancelCauseFunc
}

// Connect creates a client for "http://host:7070" (plain text), "https://host" (TLS), several hosts separated by commas,
// which are used in rotation, or "dns:///name:7070". An empty URL means CONTEXTD_URL, else http://127.0.0.1:7070. The
// connection is opened by the first call.
func Connect(url string, options ...Option) (*Client, error) {
	found, err := settle(url, os.Getenv, options)
	if err != nil {
		return nil, err
	}
	transport, err := dial(found)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(context.Background())
	return &Client{transport: transport, settings: found, host: newHost(ctx, found.maxParallel, found.log), ctx: ctx, end: end}, nil
}

// Close closes the connection and cancels running tools. Turns continue on the server.
func (c *Client) Close() error {
	c.end(ErrClosed)
	return c.transport.connection.Close()
}

// Conn is the connection, for the stubs of contextdv1: every RPC of the API.
func (c *Client) Conn() grpc.ClientConnInterface { return c.transport.connection }

// requestID is an idempotency key.
func requestID() string { return rand.Text() }

// Session opens a session, or creates it. The options also change a session that exists. You choose the id; if it is
// empty, a new session is created with an id chosen by the server.
func (c *Client) Session(ctx context.Context, id string, options ...SessionOption) (*Session, error) {
	config, tools, err := sessionOf(options)
	if err != nil {
		return nil, err
	}
	raw, err := c.open(ctx, id, config)
	if err != nil {
		return nil, err
	}
	return newSession(c, raw.GetSessionId(), tools), nil
}

func (c *Client) open(ctx context.Context, id string, config *pb.Session) (*pb.Session, error) {
	if id == "" {
		return c.create(ctx, config)
	}
	changes := proto.Size(config) > 0
	config.SessionId = id
	open := func() (*pb.Session, error) {
		if changes {
			return c.update(ctx, config)
		}
		return c.get(ctx, id)
	}
	found, err := open()
	if !errors.Is(err, SessionNotFound) {
		return found, err
	}
	made, err := c.create(ctx, config)
	if errors.Is(err, SessionAlreadyExists) { // another host was faster
		return open()
	}
	return made, err
}

func (c *Client) create(ctx context.Context, config *pb.Session) (*pb.Session, error) {
	request := &pb.CreateSessionRequest{Session: config, RequestId: requestID()}
	made, err := call(ctx, c.transport, c.transport.sessions.CreateSession, request)
	return made.GetSession(), err
}

func (c *Client) update(ctx context.Context, config *pb.Session) (*pb.Session, error) {
	request := &pb.UpdateSessionRequest{Session: config, RequestId: requestID()}
	made, err := call(ctx, c.transport, c.transport.sessions.UpdateSession, request)
	return made.GetSession(), err
}

func (c *Client) get(ctx context.Context, id string) (*pb.Session, error) {
	found, err := call(ctx, c.transport, c.transport.sessions.GetSession, &pb.GetSessionRequest{SessionId: id})
	return found.GetSession(), err
}

// Sessions lists all sessions, most recently updated first. The filter may be nil.
func (c *Client) Sessions(ctx context.Context, filter *pb.SessionFilter) iter.Seq2[*pb.Session, error] {
	return pages(func(token string) ([]*pb.Session, string, error) {
		request := &pb.ListSessionsRequest{PageSize: pageSize, PageToken: token, Filter: filter}
		page, err := call(ctx, c.transport, c.transport.sessions.ListSessions, request)
		return page.GetSessions(), page.GetNextPageToken(), err
	})
}

// Models lists the models that sessions can use: of one provider, or of all.
func (c *Client) Models(ctx context.Context, provider string) iter.Seq2[*pb.Model, error] {
	return pages(func(token string) ([]*pb.Model, string, error) {
		request := &pb.ListModelsRequest{PageSize: pageSize, PageToken: token, Provider: provider}
		page, err := call(ctx, c.transport, c.transport.models.ListModels, request)
		return page.GetModels(), page.GetNextPageToken(), err
	})
}

// CountTokens counts the tokens of a text for a model.
func (c *Client) CountTokens(ctx context.Context, model, text string) (int, error) {
	request := &pb.CountTokensRequest{Model: model, Messages: []*pb.InputMessage{input(text, nil, nil)}}
	counted, err := call(ctx, c.transport, c.transport.contexts.CountTokens, request)
	return int(counted.GetTotal().GetTokens()), err
}

// PutBlob stores content that is too large for a message. Pass the returned Media to Attach.
func (c *Client) PutBlob(ctx context.Context, data []byte, mediaType string) (Media, error) {
	hash := sha256.Sum256(data)
	header := &pb.BlobHeader{MediaType: mediaType, SizeBytes: int64(len(data)), Sha256: hex.EncodeToString(hash[:])}
	return again(ctx, c.transport, c.settings.timeout, func(ctx context.Context) (Media, error) {
		stream, err := c.transport.blobs.PutBlob(ctx)
		if err != nil {
			return Media{}, err
		}
		err = stream.Send(&pb.PutBlobRequest{Data: &pb.PutBlobRequest_Header{Header: header}})
		for start := 0; err == nil && start < len(data); start += chunkBytes {
			chunk := data[start:min(start+chunkBytes, len(data))]
			err = stream.Send(&pb.PutBlobRequest{Data: &pb.PutBlobRequest_Chunk{Chunk: chunk}})
		}
		if err != nil && !errors.Is(err, io.EOF) { // EOF: the status says what it is
			return Media{}, err
		}
		stored, err := stream.CloseAndRecv()
		return Media{MediaType: mediaType, BlobID: stored.GetBlob().GetBlobId()}, err
	})
}

// GetBlob reads stored content, such as the full output of a tool whose result was cut.
func (c *Client) GetBlob(ctx context.Context, id string) ([]byte, error) {
	return again(ctx, c.transport, c.settings.timeout, func(ctx context.Context) ([]byte, error) {
		stream, err := c.transport.blobs.GetBlob(ctx, &pb.GetBlobRequest{BlobId: id})
		if err != nil {
			return nil, err
		}
		var content []byte
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return content, nil
			}
			if err != nil {
				return nil, err
			}
			content = append(content, piece.GetChunk()...)
		}
	})
}

// String contains the address of the server, and no key.
func (c *Client) String() string { return fmt.Sprintf("contextd.Client(%s)", c.settings.url) }
