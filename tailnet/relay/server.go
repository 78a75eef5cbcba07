package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"tailscale.com/derp/derpserver"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/internal/sendbuffer"
)

// Options configures a Server. The zero value is usable.
type Options struct {
	// Logger receives the relay's log. nil disables logging.
	Logger *slog.Logger
	// MeshKey is shared by the relays that forward packets to each other: see Follow. A program that knows it can send
	// packets in the name of any node. The zero value means that there are no others.
	MeshKey [32]byte
}

// Server is a relay. It is safe for concurrent use.
type Server struct {
	log       *slog.Logger
	relay     *derpserver.Server
	monitor   *monitor
	handler   http.Handler
	admission string // the host of the relay's admission URL
	backlogs  backlogs

	mu        sync.Mutex
	keys      map[key.NodePublic]bool // the admitted keys
	asking    map[key.NodePublic]*asking
	asked     int                   // connections that wait in asking
	following map[string]*following // by name
	stun      []net.PacketConn
	closed    bool

	closing    chan struct{} // closed by Close
	background sync.WaitGroup
	closeOnce  sync.Once
}

// New returns a relay that does not admit any node yet. It has a new key in every process, which clients accept.
func New(opts Options) (*Server, error) {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: log, keys: make(map[key.NodePublic]bool), asking: make(map[key.NodePublic]*asking), following: make(map[string]*following), closing: make(chan struct{})}
	s.backlogs.by = make(map[nodeID]*backlog)
	s.relay = newRelay(func(format string, args ...any) {
		log.Debug("relay", "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
	})
	mesh := opts.MeshKey
	if mesh == [32]byte{} {
		rand.Read(mesh[:])
	}
	if err := s.relay.SetMeshKey(hex.EncodeToString(mesh[:])); err != nil {
		return nil, fmt.Errorf("make relay: %w", err)
	}
	admission, host, err := registerAdmission(s)
	if err != nil {
		return nil, fmt.Errorf("make relay: %w", err)
	}
	s.admission = host
	s.relay.SetVerifyClientURL(admission)
	s.relay.SetVerifyClientURLFailOpen(false)
	if s.monitor, err = startMonitor(s.relay, s.relay.MeshKey(), s.admitted, log); err != nil {
		unregisterAdmission(host)
		s.relay.Close()
		return nil, fmt.Errorf("make relay: %w", err)
	}
	base := derpserver.AddWebSocketSupport(s.relay, derpserver.Handler(s.relay))
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		native := strings.EqualFold(r.Header.Get("Upgrade"), "derp") // as the library decides
		base.ServeHTTP(hijackable{w, &s.backlogs, native}, r)
	})
	return s, nil
}

// queueDepth is how many packets may wait for a client whose connection is busy, and queueDepthVariable is the
// library's variable for it. A further packet drops the oldest. The library's default of 32 packets is less than one
// burst on a long path, so transfers through the relay constantly lost packets. The library allocates two queues for
// each client, of 80 bytes a packet, and in time every client touches all of them: 512 packets take 82 kB for a client
// that is idle, and 0.7 MB for one that does not read.
const (
	queueDepth         = "512"
	queueDepthVariable = "TS_DEBUG_DERP_PER_CLIENT_SEND_QUEUE_DEPTH"
)

// newRelay returns a relay with queues of queueDepth. This is the only place that configures a library through an
// environment variable: the library offers no other way. It reads the variable once, here, and no child process
// inherits it.
func newRelay(logf logger.Logf) *derpserver.Server {
	environment.Lock()
	defer environment.Unlock()
	if _, chosen := os.LookupEnv(queueDepthVariable); !chosen {
		os.Setenv(queueDepthVariable, queueDepth)
		defer os.Unsetenv(queueDepthVariable)
	}
	return derpserver.New(key.NewNode(), logf)
}

// environment is held while queueDepthVariable is set.
var environment sync.Mutex

// readSize is how many bytes are read from a node at once. The HTTP server's 4 KiB would take one read, and one wait
// for the network, for every three packets. A node that sends little touches little of it.
const readSize = 16 << 10

// Handler serves /derp (native upgrade and websocket), /derp/latency-check and /derp/probe. The ResponseWriter must
// support hijacking, directly or through Unwrap. A request lasts as long as its node stays connected, so callers must
// not set a timeout or a limit on concurrent requests. Close ends these requests; http.Server.Shutdown does not.
func (s *Server) Handler() http.Handler { return s.handler }

// hijackable finds the Hijacker behind any middleware that wraps the ResponseWriter. A node's connection gets a larger
// send buffer, a backlog and an intake: when a lost packet is repaired on one node's connection, all that waited behind
// it goes into the other's at once.
type hijackable struct {
	http.ResponseWriter
	backlogs *backlogs
	native   bool
}

func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	sendbuffer.Enlarge(c)
	early, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	own, in := w.backlogs.wrap(c, bytes.NewReader(bytes.Clone(early)), w.native)
	return own, bufio.NewReadWriter(in, buffered.Writer), nil
}

func (w hijackable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Connected returns how many nodes are connected now.
func (s *Server) Connected() int { return s.monitor.count() }

// WaitConnected blocks until the node with this key is connected (or disconnected, if want is false), or ctx ends.
func (s *Server) WaitConnected(ctx context.Context, k tailnet.PublicKey, want bool) error {
	return s.monitor.wait(ctx, nodeKey(k), want)
}

// Close closes all connections and the STUN responders, and waits for them to end. It may be called again.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		clear(s.keys) // no node can reconnect while connections end
		close(s.closing)
		stun := s.stun
		s.mu.Unlock()
		for _, c := range stun {
			c.Close()
		}
		s.monitor.cancel()
		s.relay.Close()
		s.monitor.running.Wait()
		s.background.Wait()
		unregisterAdmission(s.admission)
	})
	return nil
}
