package contextd_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contextd/contextd/clients/go"
	"github.com/contextd/contextd/clients/go/internal/testserver"
)

// listen starts a server that does not speak gRPC, on a free port.
func listen(t *testing.T, answer func(net.Conn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				answer(connection)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func http2(connection net.Conn) {
	_, _ = connection.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	first := make([]byte, 24)
	if read, _ := connection.Read(first); strings.HasPrefix(string(first[:read]), "PRI") {
		time.Sleep(5 * time.Second)
	}
}

func http1(connection net.Conn) {
	_, _ = connection.Read(make([]byte, 24))
	_, _ = connection.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
}

func silent(net.Conn) { time.Sleep(10 * time.Second) }

// overTLS is a server with the certificate of localhost, or with that of another host.
func overTLS(t *testing.T, host string) (answer func(net.Conn), ca string) {
	t.Helper()
	cert, key := openssl(t, t.TempDir(), host)
	if host != "localhost" {
		names := "subjectAltName=DNS:" + host
		command := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
			"-days", "2", "-subj", "/CN=test", "-addext", names, "-keyout", key, "-out", cert)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	return func(plain net.Conn) { http2(tls.Server(plain, config)) }, cert
}

func TestTheFirstContactFailsWithin5SecondsAndSaysWhy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl to make certificates with")
	}
	free := must[int](t)(testserver.FreePort())
	own, _ := overTLS(t, "localhost")
	other, ca := overTLS(t, "other.example")
	for name, each := range map[string]struct {
		url     string
		options []contextd.Option
		words   []string
	}{
		"nothing listens":            {fmt.Sprintf("http://127.0.0.1:%d", free), nil, []string{"connection refused", "contextd serve"}},
		"an unknown name":            {"http://no-such-host.invalid:7070", nil, []string{"cannot be resolved", "Check the host name"}},
		"https to a plain server":    {fmt.Sprintf("https://localhost:%d", listen(t, http2)), nil, []string{"does not speak TLS", "Use http://"}},
		"http to a server with TLS":  {fmt.Sprintf("http://localhost:%d", listen(t, own)), nil, []string{"expects TLS", "Use https://"}},
		"an unknown authority":       {fmt.Sprintf("https://localhost:%d", listen(t, own)), nil, []string{"unknown authority", "CONTEXTD_CA_FILE"}},
		"another host's certificate": {fmt.Sprintf("https://localhost:%d", listen(t, other)), []contextd.Option{contextd.CAFile(ca)}, []string{"another host", "host name of the certificate"}},
		"a server of HTTP/1":         {fmt.Sprintf("http://localhost:%d", listen(t, http1)), nil, []string{"is not a gRPC server", "7070"}},
		"a server that says nothing": {fmt.Sprintf("http://localhost:%d", listen(t, silent)), nil, []string{"does not answer", "network policies"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connectTo(t, each.url, append(each.options, contextd.APIKey("the-key"))...)
			began := time.Now()
			_, err := client.Session(t.Context(), "")
			equal(t, time.Since(began) < 5500*time.Millisecond, true)
			equal(t, errors.Is(err, contextd.ErrUnreachable), true)
			equal(t, status.Code(err), codes.Unavailable)
			for _, word := range append(each.words, each.url) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
			equal(t, strings.Contains(err.Error(), "the-key"), false)
		})
	}
}

func TestAServerThatWasReachedIsWaitedForWithALineInTheLog(t *testing.T) {
	t.Parallel()
	server := startOwn(t)
	log := &logBuffer{}
	client := connectTo(t, server.URL(), contextd.Logger(slog.New(slog.NewTextHandler(log, nil))))
	must[*contextd.Session](t)(client.Session(t.Context(), "known"))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	back := make(chan error, 1)
	time.AfterFunc(6*time.Second, func() { back <- server.Start() })
	must[*contextd.Session](t)(client.Session(t.Context(), "known"))
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	equal(t, len(lines), 2)
	equal(t, strings.Contains(lines[0], "does not answer") && strings.Contains(lines[0], server.URL()), true)
	equal(t, strings.Contains(lines[1], "answers again"), true)
}
