package contextd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
)

const defaultURL = "http://127.0.0.1:7070"

// Option is an option of Connect.
type Option func(*settings)

// settings are the address of the server and the options of the connection.
type settings struct {
	url          string
	hosts        []string // host:port of each host
	balanced     bool     // the one host is a name whose addresses are used in turn
	tls          bool
	apiKey       string
	caFile       string
	certFile     string
	keyFile      string
	timeout      time.Duration
	reconnectFor time.Duration
	maxParallel  int
	dialOptions  []grpc.DialOption
	log          *slog.Logger
}

// APIKey sets the key that is sent with each call. Default: CONTEXTD_API_KEY.
func APIKey(key string) Option { return func(s *settings) { s.apiKey = key } }

// CAFile sets the certificate authorities (PEM) of the server. Default: CONTEXTD_CA_FILE, else those of the system.
func CAFile(path string) Option { return func(s *settings) { s.caFile = path } }

// ClientCertificate sets the client's certificate and its private key (PEM). Default: CONTEXTD_CERT_FILE and
// CONTEXTD_KEY_FILE.
func ClientCertificate(certFile, keyFile string) Option {
	return func(s *settings) { s.certFile, s.keyFile = certFile, keyFile }
}

// Timeout sets the time for which a call is retried. Runs of turns use ReconnectFor instead. Default: one minute.
func Timeout(limit time.Duration) Option { return func(s *settings) { s.timeout = limit } }

// ReconnectFor sets the time without a reachable server after which a run or a watch fails. Default: five minutes.
func ReconnectFor(limit time.Duration) Option { return func(s *settings) { s.reconnectFor = limit } }

// MaxParallelTools sets the maximum number of tools that run at the same time. Default: 32.
func MaxParallelTools(number int) Option { return func(s *settings) { s.maxParallel = number } }

// Logger receives failures of tools and of approval callbacks, and outages. Default: slog.Default().
func Logger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// DialOptions are further options of the connection, such as interceptors, or the stats handler of OpenTelemetry.
func DialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dialOptions = append(s.dialOptions, options...) }
}

// settle reads missing settings from the environment. Empty variables are ignored.
func settle(url string, env func(string) string, options []Option) (*settings, error) {
	found := &settings{timeout: time.Minute, reconnectFor: 5 * time.Minute, maxParallel: 32, log: slog.Default()}
	for _, each := range options {
		each(found)
	}
	ownFiles := found.caFile != "" || found.certFile != ""
	found.url = or(url, env("CONTEXTD_URL"), addressURL(env("CONTEXTD_ADDRESS")), defaultURL)
	found.apiKey = or(strings.TrimSpace(found.apiKey), strings.TrimSpace(env("CONTEXTD_API_KEY")))
	if err := checkKey(found.apiKey); err != nil {
		return nil, err
	}
	found.caFile = or(found.caFile, env("CONTEXTD_CA_FILE"))
	found.certFile = or(found.certFile, env("CONTEXTD_CERT_FILE"))
	found.keyFile = or(found.keyFile, env("CONTEXTD_KEY_FILE"))
	if err := found.parse(); err != nil {
		return nil, fmt.Errorf("contextd: %w", err)
	}
	if (found.certFile == "") != (found.keyFile == "") {
		return nil, errors.New("contextd: a client certificate takes both its file (CONTEXTD_CERT_FILE) and that of its key (CONTEXTD_KEY_FILE)")
	}
	if !found.tls && ownFiles {
		return nil, fmt.Errorf("contextd: %s is plain text; certificates take an https:// URL", found.url)
	}
	if found.maxParallel < 1 {
		return nil, errors.New("contextd: MaxParallelTools takes a number above 0")
	}
	return found, nil
}

// checkKey rejects a key that cannot be sent. No message contains a key.
func checkKey(key string) error {
	wrong := strings.IndexFunc(key, func(r rune) bool { return r < '!' || r > '~' })
	if wrong < 0 {
		return nil
	}
	return fmt.Errorf("contextd: the API key has a character at position %d of %d that no key has: "+
		"a space, a control character, or one that is not ASCII", wrong+1, len(key))
}

// addressURL is CONTEXTD_ADDRESS, which the command line also reads: its plain-text form has no scheme.
func addressURL(address string) string {
	if address == "" || strings.Contains(address, "://") || strings.HasPrefix(address, "dns:") {
		return address
	}
	return "http://" + address
}

func or(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// parse reads the URL: http://host:7070, https://host, several hosts separated by commas (http://a:7070,b:7070), or
// dns:///name:7070 (plain text) and https+dns:///name:443, whose addresses are used in rotation.
func (s *settings) parse() error {
	for _, names := range []struct {
		prefix string
		tls    bool
		port   string
	}{{"dns:///", false, "7070"}, {"http+dns:///", false, "7070"}, {"https+dns:///", true, "443"}} {
		if name, ok := strings.CutPrefix(s.url, names.prefix); ok {
			host, err := withPort(name, names.port)
			s.hosts, s.tls, s.balanced = []string{host}, names.tls, true
			return s.wrong(err)
		}
	}
	scheme, rest, ok := strings.Cut(s.url, "://")
	port := map[string]string{"http": "7070", "https": "443"}[scheme]
	if !ok || port == "" {
		return fmt.Errorf("%q is not a URL of a server: it begins with http://, https:// or dns:///", s.url)
	}
	s.tls = scheme == "https"
	for each := range strings.SplitSeq(rest, ",") {
		host, err := withPort(strings.TrimPrefix(strings.TrimSpace(each), scheme+"://"), port)
		if err != nil {
			return s.wrong(err)
		}
		s.hosts = append(s.hosts, host)
	}
	s.balanced = len(s.hosts) == 1
	return nil
}

func (s *settings) wrong(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%q: %w", s.url, err)
}

// withPort returns host:port. It rejects a URL with a path, a user or other components.
func withPort(host, port string) (string, error) {
	parts, err := url.Parse("//" + host)
	if err != nil {
		return "", errors.New("a host and a port are needed")
	}
	if parts.Hostname() == "" || strings.Trim(parts.Path, "/") != "" || parts.RawQuery != "" || parts.Fragment != "" || parts.User != nil {
		return "", errors.New("a host and a port are needed, and nothing else")
	}
	return net.JoinHostPort(parts.Hostname(), or(parts.Port(), port)), nil
}

// tlsConfig reads the files.
func (s *settings) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.caFile != "" {
		text, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, fmt.Errorf("contextd: the certificate authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("contextd: %s has no certificate in PEM", s.caFile)
		}
	}
	if s.certFile != "" {
		certificate, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return nil, fmt.Errorf("contextd: the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
