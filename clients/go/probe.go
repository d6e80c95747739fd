package contextd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// The time for the first connection, after which the call fails. The last second is used to find the cause with
	// plain sockets, because gRPC's error has little detail.
	contactTimeout = 5 * time.Second
	probeTimeout   = time.Second
	// Maximum number of hosts of a URL that are probed.
	maxProbed     = 3
	settingsFrame = 4
)

// ErrUnreachable reports that the first connection of the client failed: the text of the *Error has the cause and what
// to do.
var ErrUnreachable = errors.New("contextd: no server was reached")

// http2Preface is the beginning of an HTTP/2 connection: the preface and empty SETTINGS.
var http2Preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")

// finding is why a host cannot be reached, and what to do.
type finding struct{ cause, step string }

// unreachable returns the error for a server that cannot be reached, or nil if it responds slowly. It takes at most
// probeTimeout.
func unreachable(ctx context.Context, settings *settings) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	hosts := settings.hosts[:min(len(settings.hosts), maxProbed)]
	found := make([]chan finding, len(hosts))
	for i, host := range hosts {
		found[i] = make(chan finding, 1)
		go func() { found[i] <- probe(ctx, host, settings) }()
	}
	var causes []string
	var step string
	for i, host := range hosts {
		each := noAnswer(host)
		select {
		case each = <-found[i]:
		case <-ctx.Done():
		}
		if each == (finding{}) {
			return nil
		}
		causes = append(causes, each.cause)
		step = or(step, each.step)
	}
	text := fmt.Sprintf("no contextd server was reached at %s: %s. %s", settings.url, strings.Join(causes, "; "), step)
	return &Error{Code: codes.Unavailable, Message: text, unreachable: true}
}

func noAnswer(host string) finding {
	return finding{
		host + " does not answer",
		"Check the address in the URL (CONTEXTD_URL), and firewalls and network policies on the way.",
	}
}

// probe connects to host:port and identifies the server. It returns no finding for a server that gRPC can use.
func probe(ctx context.Context, host string, settings *settings) finding {
	name, _, _ := net.SplitHostPort(host)
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	var unresolved *net.DNSError
	switch {
	case errors.As(err, &unresolved):
		return finding{fmt.Sprintf("the name %s cannot be resolved", name), "Check the host name in the URL (CONTEXTD_URL)."}
	case errors.Is(err, syscall.ECONNREFUSED):
		return finding{
			host + " refuses the connection (connection refused)",
			"Start the server (`contextd serve`), or set CONTEXTD_URL to the address of a running one.",
		}
	case err != nil && ctx.Err() != nil:
		return noAnswer(host)
	case err != nil:
		return finding{fmt.Sprintf("%s: %v", host, err), "Check the address in the URL (CONTEXTD_URL)."}
	}
	defer plain.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = plain.SetDeadline(deadline)
	}
	if settings.tls {
		return probeTLS(ctx, host, name, plain, settings)
	}
	return probePlain(ctx, host, plain)
}

func probePlain(ctx context.Context, host string, plain net.Conn) finding {
	answered, err := firstBytes(plain)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		return noAnswer(host)
	case strings.HasPrefix(answered, "\x15\x03") || answered == "" && speaksTLS(ctx, host):
		return finding{host + " expects TLS, and the URL is plain text", "Use https:// in the URL (CONTEXTD_URL)."}
	case isHTTP2(answered):
		return finding{}
	}
	return otherProtocol(host)
}

func probeTLS(ctx context.Context, host, name string, plain net.Conn, settings *settings) finding {
	config, err := settings.tlsConfig()
	if err != nil {
		return finding{err.Error(), "Check the files."}
	}
	config.ServerName, config.NextProtos = name, []string{"h2"}
	secure := tls.Client(plain, config)
	var answered string
	if err = secure.HandshakeContext(ctx); err == nil {
		answered, err = firstBytes(secure)
	}
	var wrongHost x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	switch {
	case errors.As(err, &wrongHost):
		return finding{
			fmt.Sprintf("the certificate of %s is for another host, not for %s", host, name),
			"Use a host name of the certificate in the URL (CONTEXTD_URL), or give the server one for this name.",
		}
	case errors.As(err, &unknown):
		return finding{
			fmt.Sprintf("the certificate of %s is signed by an unknown authority", host),
			"Set CONTEXTD_CA_FILE (CAFile) to the authority's certificate (PEM).",
		}
	case errors.As(err, &invalid):
		return finding{fmt.Sprintf("the certificate of %s is not valid: %v", host, invalid), "Renew the server's certificate."}
	case err != nil && strings.Contains(err.Error(), "certificate required"), errors.As(err, &alert) && strings.Contains(alert.Error(), "certificate"):
		return finding{
			host + " requires a client certificate that it accepts",
			"Set CONTEXTD_CERT_FILE and CONTEXTD_KEY_FILE (ClientCertificate).",
		}
	case err != nil && speaksPlain(ctx, host):
		return finding{
			host + " does not speak TLS, and the URL begins with https://",
			"Use http:// in the URL (CONTEXTD_URL), or set CONTEXTD_TLS_CERT and CONTEXTD_TLS_KEY at the server.",
		}
	case err != nil:
		return finding{fmt.Sprintf("TLS with %s failed: %v", host, err), "Check the server's certificate and its TLS settings."}
	case isHTTP2(answered):
		return finding{}
	}
	return otherProtocol(host)
}

func otherProtocol(host string) finding {
	return finding{
		host + " is not a gRPC server (no HTTP/2)",
		"Check the port in the URL (CONTEXTD_URL): contextd's own is 7070, not that of metrics and health.",
	}
}

// firstBytes returns the first bytes of the response to the preface; none if the server closes the connection.
func firstBytes(connection net.Conn) (string, error) {
	if _, err := connection.Write(http2Preface); err != nil {
		return "", err
	}
	answered := make([]byte, 9)
	read, err := connection.Read(answered)
	return string(answered[:read]), err
}

func isHTTP2(answered string) bool {
	return len(answered) > 3 && answered[3] == settingsFrame && !strings.HasPrefix(answered, "HTTP")
}

func speaksPlain(ctx context.Context, host string) bool {
	plain, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	defer plain.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = plain.SetDeadline(deadline)
	}
	answered, _ := firstBytes(plain)
	return isHTTP2(answered) || strings.HasPrefix(answered, "HTTP")
}

func speaksTLS(ctx context.Context, host string) bool {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it asks whether there is TLS, and sends nothing
	secure, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return false
	}
	_ = secure.Close()
	return true
}
