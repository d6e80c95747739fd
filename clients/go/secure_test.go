package contextd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contextd/contextd/clients/go"
	"github.com/contextd/contextd/clients/go/internal/testserver"
)

// mutual is a configuration that takes client certificates of localhost.
const mutual = `
[tls]
cert_file = %q
key_file = %q
client_ca_file = %q
client_cert_required = true

[auth]
required = true

[auth.certificates."localhost"]
tenant = "acme"
access = "write"
`

func TestAClientCertificateLetsOneIn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl to make certificates with")
	}
	place := t.TempDir()
	cert, key := openssl(t, place, "server")
	clientCert, clientKey := openssl(t, place, "client")
	config := filepath.Join(place, "config.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, mutual, cert, key, clientCert), 0o644); err != nil {
		t.Fatal(err)
	}
	server := testserver.Start(t, nil, map[string]string{"CONTEXTD_CONFIG": config})
	address := "https://localhost:" + strconv.Itoa(server.Port)

	client := connectTo(t, address, contextd.CAFile(cert), contextd.ClientCertificate(clientCert, clientKey))
	if _, err := client.Session(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	stranger := connectTo(t, address, contextd.CAFile(cert), contextd.Timeout(10*time.Second))
	_, err := stranger.Session(t.Context(), "")
	equal(t, status.Code(err), codes.Unavailable)
}

func startOwn(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, nil, nil)
}

// openssl makes a certificate for localhost and its key, named by their kind.
func openssl(t *testing.T, place, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(place, name+".pem"), filepath.Join(place, name+"-key.pem")
	command := exec.Command("openssl", strings.Fields("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN="+name)...)
	command.Args = append(command.Args, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
		"-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", cert)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return cert, key
}

// apiKey makes a key, and the file that the server has for it.
func apiKey(t *testing.T, place string) (secret, file string) {
	t.Helper()
	out, err := exec.Command(testserver.Program(), "admin", "key", "generate", "--tenant", "acme").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var kept []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(line, "ctxd_") {
			secret = line
		} else {
			kept = append(kept, line)
		}
	}
	file = filepath.Join(place, "keys.toml")
	if err := os.WriteFile(file, []byte(strings.Join(kept, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return secret, file
}

func TestTLSAndAPIKeys(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl to make certificates with")
	}
	place := t.TempDir()
	cert, key := openssl(t, place, "server")
	secret, keys := apiKey(t, place)
	server := testserver.Start(t, nil, map[string]string{
		"CONTEXTD_TLS_CERT": cert, "CONTEXTD_TLS_KEY": key, "CONTEXTD_KEYS_FILE": keys, "CONTEXTD_AUTH_REQUIRED": "true",
	})
	address := "localhost:" + strconv.Itoa(server.Port)

	t.Run("a key and an authority let one in", func(t *testing.T) {
		client := connectTo(t, "https://"+address, contextd.APIKey(secret), contextd.CAFile(cert))
		session, err := client.Session(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, runText(t, session, "Hello!") != "", true)
	})
	t.Run("several hosts are checked by their own names", func(t *testing.T) {
		both := "https://" + address + ",127.0.0.1:" + strconv.Itoa(server.Port)
		client := connectTo(t, both, contextd.APIKey(secret), contextd.CAFile(cert))
		for range 4 {
			if _, err := client.Session(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("variables do the same", func(t *testing.T) {
		t.Setenv("CONTEXTD_URL", "https://"+address)
		t.Setenv("CONTEXTD_API_KEY", secret)
		t.Setenv("CONTEXTD_CA_FILE", cert)
		if _, err := connectTo(t, "").Session(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("without the key one is refused at once", func(t *testing.T) {
		_, err := connectTo(t, "https://"+address, contextd.CAFile(cert)).Session(t.Context(), "")
		equal(t, errors.Is(err, contextd.Unauthenticated), true)
		equal(t, strings.Contains(err.Error(), secret), false)
	})
	t.Run("without the authority the server is not trusted", func(t *testing.T) {
		client := connectTo(t, "https://"+address, contextd.APIKey(secret), contextd.Timeout(10*time.Second))
		_, err := client.Session(t.Context(), "")
		equal(t, status.Code(err), codes.Unavailable)
		equal(t, strings.Contains(err.Error(), "signed by an unknown authority"), true)
	})
	t.Run("files that cannot be read are named", func(t *testing.T) {
		_, err := contextd.Connect("https://"+address, contextd.CAFile("no-such-file.pem"))
		equal(t, err != nil && strings.Contains(err.Error(), "no-such-file.pem"), true)
	})
}
