package testserver

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Cutter is a proxy that cuts every connection again and again.
type Cutter struct {
	listener net.Listener
	mutex    sync.Mutex
	open     map[net.Conn]bool
}

// StartCutter starts one before a server; it ends with the test.
func StartCutter(t testing.TB, server *Server, every time.Duration) *Cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cutter := &Cutter{listener: listener, open: map[net.Conn]bool{}}
	ticker := time.NewTicker(every)
	stopped := make(chan struct{})
	go cutter.accept(server.Port)
	go func() {
		for {
			select {
			case <-ticker.C:
				cutter.cut()
			case <-stopped:
				return
			}
		}
	}()
	t.Cleanup(func() {
		ticker.Stop()
		close(stopped)
		_ = listener.Close()
		cutter.cut()
	})
	return cutter
}

// URL is where it listens.
func (c *Cutter) URL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.listener.Addr().(*net.TCPAddr).Port)
}

func (c *Cutter) accept(port int) {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mutex.Lock()
		c.open[client], c.open[server] = true, true
		c.mutex.Unlock()
		go c.pump(client, server)
		go c.pump(server, client)
	}
}

func (c *Cutter) pump(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, each := range []net.Conn{from, to} {
		_ = each.Close()
		delete(c.open, each)
	}
}

func (c *Cutter) cut() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for each := range c.open {
		_ = each.Close()
	}
}
