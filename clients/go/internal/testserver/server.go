// Package testserver starts real servers for tests: `contextd serve` on a PostgreSQL of its own, with scripts in place
// of models. CONTEXTD_BIN is the program.
package testserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// lease is short, so that tests of crashes are quick; a busy machine renews it in time all the same. A turn whose lease
// runs out five times in a row fails.
const lease = "3s"

// Program is the server's.
func Program() string {
	if found := os.Getenv("CONTEXTD_BIN"); found != "" {
		return found
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../../target/debug/contextd")
}

// Server is contextd, which can be killed and started again on the same data and the same port.
type Server struct {
	// Port is its port, on 127.0.0.1.
	Port      int
	place     string
	variables map[string]string
	process   *exec.Cmd
}

// New makes the files of a server, with scripts by their names.
func New(scripts map[string]any, variables map[string]string) (*Server, error) {
	place, err := os.MkdirTemp("", "contextd-go-")
	if err != nil {
		return nil, err
	}
	// Started by root, PostgreSQL runs as another user.
	if err := errors.Join(os.Chmod(place, 0o755), os.Mkdir(filepath.Join(place, "scripts"), 0o755)); err != nil {
		return nil, err
	}
	for name, script := range scripts {
		text, err := json.Marshal(script)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(place, "scripts", name+".json"), text, 0o644); err != nil {
			return nil, err
		}
	}
	port, err := FreePort()
	return &Server{Port: port, place: place, variables: variables}, err
}

// Ports that no system assigns by itself: a server that is down keeps its port to itself.
const firstPort, endPort = 10_000, 32_000

// FreePort is a port that was free a moment ago.
func FreePort() (int, error) {
	for {
		port := firstPort + rand.IntN(endPort-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		switch {
		case err == nil:
			return port, listener.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, err
		}
	}
}

// URL is where it serves.
func (s *Server) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.Port) }

// Start starts it, and waits until it serves.
func (s *Server) Start() error {
	log, err := os.OpenFile(filepath.Join(s.place, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(Program(), "serve")
	process.Env = s.environment()
	process.Stderr = log
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	s.process = process
	late := time.AfterFunc(patience, func() { _ = s.process.Process.Kill() })
	defer late.Stop()
	ready, _ := bufio.NewReader(out).ReadString('\n')
	if !strings.HasPrefix(ready, "contextd listens on ") {
		return fmt.Errorf("the server does not start: %s", s.Log())
	}
	return nil
}

// environment leaves out what would configure another server, or a real model.
func (s *Server) environment() []string {
	var kept []string
	for _, each := range os.Environ() {
		name, _, _ := strings.Cut(each, "=")
		if !strings.HasPrefix(name, "CONTEXTD_") && !strings.HasSuffix(name, "_API_KEY") && !strings.HasSuffix(name, "_BASE_URL") {
			kept = append(kept, each)
		}
	}
	kept = append(kept,
		fmt.Sprintf("CONTEXTD_LISTEN=127.0.0.1:%d", s.Port),
		"CONTEXTD_DATA_DIR="+filepath.Join(s.place, "data"),
		"CONTEXTD_SCRIPT_DIR="+filepath.Join(s.place, "scripts"),
		"CONTEXTD_LEASE_TTL="+lease,
		"XDG_CONFIG_HOME="+s.place,
	)
	for name, value := range s.variables {
		kept = append(kept, name+"="+value)
	}
	return kept
}

// End sends it a signal, and waits until it has ended.
func (s *Server) End(signal syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	process := s.process
	s.process = nil
	if err := process.Process.Signal(signal); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = process.Process.Kill() })
	defer late.Stop()
	var status *exec.ExitError
	if err := process.Wait(); !errors.As(err, &status) {
		return err
	}
	return nil
}

// Kill ends it as a crash does.
func (s *Server) Kill() error { return s.End(syscall.SIGKILL) }

// Drain ends it in order.
func (s *Server) Drain() error { return s.End(syscall.SIGTERM) }

// Log is what it wrote.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.place, "log"))
	return string(text)
}

// DatabaseURL is the PostgreSQL that it runs, for other replicas on this machine.
func (s *Server) DatabaseURL() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.place, "data/postgresql/postmaster.pid"))
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 5 {
		return "", errors.New("postmaster.pid has no socket")
	}
	return "postgres://contextd@localhost/contextd?host=" + lines[4], nil
}

// Remove ends it at once, as a second signal does, and takes its files away.
func (s *Server) Remove() error {
	if s.process != nil {
		_ = s.process.Process.Signal(syscall.SIGTERM)
		time.Sleep(200 * time.Millisecond)
	}
	return errors.Join(s.Drain(), os.RemoveAll(s.place))
}

// Start makes and starts a server that ends with the test.
func Start(t testing.TB, scripts map[string]any, variables map[string]string) *Server {
	t.Helper()
	server, err := New(scripts, variables)
	if err == nil {
		t.Cleanup(func() { _ = server.Remove() })
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// Fleet is two replicas on the database of a third server. Clients do not know that one, but it may take turns over.
type Fleet struct {
	Replicas []*Server
	keeper   *Server
}

// StartFleet starts a fleet that ends with the test.
func StartFleet(t testing.TB, scripts map[string]any) *Fleet {
	t.Helper()
	fleet := &Fleet{keeper: Start(t, scripts, nil)}
	database, err := fleet.keeper.DatabaseURL()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		replica := Start(t, scripts, map[string]string{"CONTEXTD_DATABASE_URL": database})
		fleet.Replicas = append(fleet.Replicas, replica)
	}
	return fleet
}

// URL names both.
func (f *Fleet) URL() string {
	return fmt.Sprintf("http://127.0.0.1:%d,127.0.0.1:%d", f.Replicas[0].Port, f.Replicas[1].Port)
}

// Logs are the newest lines of each server's log.
func (f *Fleet) Logs() string {
	var logs strings.Builder
	for _, each := range append([]*Server{f.keeper}, f.Replicas...) {
		log := each.Log()
		logs.WriteString(log[max(0, len(log)-20_000):] + "\n")
	}
	return logs.String()
}
