package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

const (
	// Scrollback is how many bytes of a terminal's output are kept for new viewers.
	Scrollback = 256 << 10
	// maxTerminals bounds the terminals of a Holder. A new one then ends the one that has been without viewers the
	// longest.
	maxTerminals = 64
	maxViewers   = 32 // per terminal
	maxConns     = 512
	// openTimeout is how long a connection may take to send its request.
	openTimeout = 30 * time.Second
	// Defaults of Options.
	defaultAbandoned = 24 * time.Hour
	defaultStall     = 10 * time.Second
)

// Start is a Holder's first frame: the Request with everything that its shell needs if it is new.
type Start struct {
	ptywire.Request
	Path      string   `json:"path"` // program
	Args      []string `json:"args"` // with the program's name
	Env       []string `json:"env"`
	Directory string   `json:"directory"`
	Banner    []byte   `json:"banner,omitempty"` // shown before the shell's own output
}

// Options configures a Holder. All are optional.
type Options struct {
	Logger    *slog.Logger  // nil discards
	Launch    Launch        // starts shells; nil means the system's usual way
	Abandoned time.Duration // how long a terminal without viewers lives; 0 means a day
	Stall     time.Duration // how long a viewer that reads nothing may block the shell; 0 means 10 s
}

// Holder holds terminals. Close it. It is safe for concurrent use.
type Holder struct {
	opts Options
	log  *slog.Logger

	mu        sync.Mutex // guards the fields below
	closed    bool
	terminals map[uuid.UUID]*terminal
	conns     map[net.Conn]bool // true once attached to a terminal
	wg        sync.WaitGroup    // grows only while not closed
}

var (
	errClosed  = errors.New("the workspace is stopping")
	errTooMany = errors.New("too many terminals are open in this workspace: close one")
	errViewers = errors.New("too many viewers look at this terminal")
)

// New returns a Holder without terminals.
func New(opts Options) *Holder {
	proc.DefaultSignals()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Abandoned == 0 {
		opts.Abandoned = defaultAbandoned
	}
	if opts.Stall == 0 {
		opts.Stall = defaultStall
	}
	if opts.Launch == nil {
		opts.Launch = launch
	}
	return &Holder{opts: opts, log: opts.Logger, terminals: make(map[uuid.UUID]*terminal),
		conns: make(map[net.Conn]bool)}
}

// Go serves one viewer on a goroutine that Close waits for. It takes ownership of the connection.
func (h *Holder) Go(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.conns) >= maxConns {
		conn.Close()
		return
	}
	h.conns[conn] = false
	h.wg.Go(func() {
		defer func() {
			conn.Close()
			h.mu.Lock()
			delete(h.conns, conn)
			h.mu.Unlock()
		}()
		if err := h.serve(conn); err != nil {
			h.log.Debug("terminal's viewer ended", "reason", err)
		}
	})
}

// serve attaches a viewer to the terminal that it requests, until either ends.
func (h *Holder) serve(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return err
	}
	kind, payload, err := ptywire.Read(conn)
	if err != nil {
		return fmt.Errorf("read what is wanted: %w", err)
	}
	var want Start
	if kind != ptywire.Open || json.Unmarshal(payload, &want) != nil || want.ID == uuid.Nil {
		return errors.New("the first frame is not a request")
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	t, v, err := h.attach(want, conn)
	if err != nil {
		h.log.Warn("cannot open terminal", "err", err)
		return errors.Join(err, ptywire.WriteJSON(conn, ptywire.Exit, ptywire.End{Code: 127, Reason: err.Error()}))
	}
	return t.serve(v)
}

// attach adds a viewer to a terminal, and starts the terminal if there is none. It starts one terminal at a time.
func (h *Holder) attach(want Start, conn net.Conn) (*terminal, *viewer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errClosed
	}
	t := h.terminals[want.ID]
	if t == nil || t.ended() { // an ended terminal stays in the map for a moment after its viewers received the result
		if t == nil && len(h.terminals) >= maxTerminals && !h.evict() {
			return nil, nil, errTooMany
		}
		var err error
		if t, err = open(h, want); err != nil {
			return nil, nil, err
		}
		h.terminals[want.ID] = t
		h.wg.Go(func() {
			t.run()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.terminals[want.ID] == t {
				delete(h.terminals, want.ID)
			}
		})
	}
	v, err := t.attach(conn)
	if err != nil {
		return nil, nil, err
	}
	h.conns[conn] = true
	t.resize(want.Size)
	return t, v, nil
}

// evict ends the terminal that has been without viewers the longest, and reports whether it found one. Called with mu
// held.
func (h *Holder) evict() bool {
	var oldest *terminal
	var when time.Time
	for _, t := range h.terminals {
		if left, alone := t.left(); alone && (oldest == nil || left.Before(when)) {
			oldest, when = t, left
		}
	}
	if oldest == nil {
		return false
	}
	for id, t := range h.terminals {
		if t == oldest {
			delete(h.terminals, id) // it ends later
		}
	}
	oldest.end("it was the longest unused of too many")
	return true
}

// Terminals returns the number of terminals.
func (h *Holder) Terminals() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.terminals)
}

// Viewers returns the number of connections.
func (h *Holder) Viewers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// Close hangs up every terminal, kills programs that ignore the hangup for 5 s, waits, and sends viewers the reason. It
// is idempotent.
func (h *Holder) Close() error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	if first {
		for _, t := range h.terminals {
			t.end(errClosed.Error())
		}
		for conn, looks := range h.conns {
			if !looks {
				conn.Close() // the others end with their terminal
			}
		}
	}
	h.mu.Unlock()
	h.wg.Wait()
	return nil
}
