package terminal

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

const (
	chunk = 32 << 10 // bytes per read and per frame
	// killDelay is how long programs may take to end after a hangup.
	killDelay = 5 * time.Second
	// lastWords is how long a viewer may take to receive the last output once the terminal has ended.
	lastWords = 5 * time.Second
)

// terminal is one shell with its pseudo terminal.
type terminal struct {
	holder *Holder
	shell  *shell
	asked  chan struct{} // closed by end

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // of mu: output, room, viewers, the end
	ring    []byte     // the last output, byte n of all at n % Scrollback
	total   int64      // bytes printed so far
	viewers map[*viewer]struct{}
	leftAt  time.Time // when the last viewer left
	why     string    // of end
	isAsked bool
	over    *ptywire.End // nil while it lives
}

// viewer is one connection to a terminal, whose mu guards the fields.
type viewer struct {
	conn net.Conn
	pos  int64     // bytes sent so far
	took time.Time // when it last read something
	gone bool
}

// open starts a shell on a new terminal. The caller runs it.
func open(h *Holder, want Start) (*terminal, error) {
	t := &terminal{holder: h, asked: make(chan struct{}), viewers: make(map[*viewer]struct{}), leftAt: time.Now()}
	t.changed = sync.NewCond(&t.mu)
	t.append(want.Banner)
	var err error
	if t.shell, err = startShell(h, want); err != nil {
		return nil, err
	}
	return t, nil
}

// run moves the shell's output until the shell has ended and all viewers have received the result.
func (t *terminal) run() {
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		t.pump()
	}()
	end := endOf(t.wait())
	t.shell.ended()
	<-pumped
	t.shell.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != "" {
		end.Reason = t.why
	}
	t.over = &end
	t.changed.Broadcast()
}

// wait blocks until the shell has ended: on its own, because end was called, or because it had no viewer for too long.
func (t *terminal) wait() exitStatus {
	look := time.NewTicker(max(t.holder.opts.Abandoned/10, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case status := <-t.shell.exited:
			return status
		case <-look.C:
			if since, alone := t.left(); alone && time.Since(since) > t.holder.opts.Abandoned {
				t.end("it had no viewer for " + t.holder.opts.Abandoned.String())
			}
			continue
		case <-t.asked:
		}
		t.shell.hangUp()
		timer := time.NewTimer(killDelay)
		defer timer.Stop()
		select {
		case status := <-t.shell.exited:
			return status
		case <-timer.C:
			t.shell.kill()
			return <-t.shell.exited
		}
	}
}

// end asks the terminal to end, and does not wait. Only the first reason is kept.
func (t *terminal) end(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isAsked {
		t.isAsked, t.why = true, why
		close(t.asked)
		t.changed.Broadcast()
	}
}

// ended reports whether the terminal has ended and its viewers are being told.
func (t *terminal) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over != nil
}

// left returns when the last viewer left; alone is set if there is none now.
func (t *terminal) left() (since time.Time, alone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leftAt, len(t.viewers) == 0
}

// pump reads the output until no process has the terminal open, or until the shell has ended and the terminal is
// silent.
func (t *terminal) pump() {
	buf := make([]byte, chunk)
	for {
		n, err := t.shell.Read(buf)
		if n > 0 {
			t.room(n)
			t.append(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// room waits until n more bytes do not overwrite output that a viewer still needs. It drops a viewer that reads nothing
// for too long.
func (t *terminal) room(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	for {
		if t.isAsked {
			return
		}
		next := time.Duration(-1)
		for v := range t.viewers {
			if v.gone || t.total+int64(n)-v.pos <= Scrollback {
				continue
			}
			since := v.took
			if since.Before(began) {
				since = began // there may have been nothing to read
			}
			left := t.holder.opts.Stall - time.Since(since)
			if left <= 0 {
				v.gone = true
				v.conn.Close()
				continue
			}
			if next < 0 || left < next {
				next = left
			}
		}
		if next < 0 {
			return
		}
		timer := time.AfterFunc(next, t.wake)
		t.changed.Wait()
		timer.Stop()
	}
}

func (t *terminal) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.Broadcast()
}

// append adds output to the scrollback.
func (t *terminal) append(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(data) > 0 {
		at := int(t.total % Scrollback)
		if at == len(t.ring) && at < Scrollback { // the ring grows as needed
			n := min(len(data), Scrollback-at)
			t.ring = append(t.ring, data[:n]...)
			t.total += int64(n)
			data = data[n:]
			continue
		}
		n := copy(t.ring[at:], data)
		t.total += int64(n)
		data = data[n:]
	}
	t.changed.Broadcast()
}

// attach adds a viewer, which first receives the scrollback.
func (t *terminal) attach(conn net.Conn) (*viewer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.viewers) >= maxViewers {
		return nil, errViewers
	}
	v := &viewer{conn: conn, took: time.Now(), pos: max(0, t.total-Scrollback)}
	if v.pos > 0 {
		v.pos = t.wholeLine(v.pos)
	}
	t.viewers[v] = struct{}{}
	if t.total > 0 && t.over == nil {
		t.shell.redraw()
	}
	return v, nil
}

// wholeLine returns where the first complete line of the scrollback begins, so that a viewer sees no partial escape
// sequence. Called with mu held.
func (t *terminal) wholeLine(pos int64) int64 {
	at := int(pos % Scrollback)
	kept := append(append([]byte(nil), t.ring[at:]...), t.ring[:at]...)
	if i := bytes.IndexByte(kept[:min(len(kept), chunk)], '\n'); i >= 0 {
		return pos + int64(i) + 1
	}
	return pos
}

// serve sends output to a viewer and writes its input to the terminal, until either ends.
func (t *terminal) serve(v *viewer) error {
	var input sync.WaitGroup
	input.Go(func() {
		t.input(v)
		t.mu.Lock()
		v.gone = true
		t.changed.Broadcast()
		t.mu.Unlock()
	})
	err := t.show(v)
	v.conn.Close()
	input.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.viewers, v)
	t.leftAt = time.Now()
	t.changed.Broadcast()
	return err
}

// show sends output until the viewer is gone, or the terminal has ended and all output is sent.
func (t *terminal) show(v *viewer) error {
	buf := make([]byte, chunk)
	for {
		n, over := t.next(v, buf)
		if over != nil {
			_ = v.conn.SetWriteDeadline(time.Now().Add(lastWords)) // fails only once it is closed
		}
		switch {
		case n > 0:
			if err := ptywire.Write(v.conn, ptywire.Output, buf[:n]); err != nil {
				return err
			}
		case over != nil:
			return ptywire.WriteJSON(v.conn, ptywire.Exit, *over)
		default:
			return io.ErrClosedPipe
		}
		t.took(v, n)
	}
}

// next waits for output that the viewer has not received, and copies it. It returns neither data nor an end if the
// viewer is gone.
func (t *terminal) next(v *viewer, buf []byte) (n int, over *ptywire.End) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v.pos == t.total && t.over == nil && !v.gone {
		t.changed.Wait()
	}
	if v.gone {
		return 0, nil
	}
	v.pos = max(v.pos, t.total-Scrollback) // a shell that was asked to end does not wait for viewers
	at := int(v.pos % Scrollback)
	n = copy(buf, t.ring[at:min(len(t.ring), at+int(t.total-v.pos))])
	return n, t.over
}

func (t *terminal) took(v *viewer, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.pos += int64(n)
	v.took = time.Now()
	t.changed.Broadcast()
}

// input writes the viewer's input to the terminal.
func (t *terminal) input(v *viewer) {
	for {
		kind, payload, err := ptywire.Read(v.conn)
		if err != nil {
			return
		}
		switch kind {
		case ptywire.Input:
			if _, err := t.shell.Write(payload); err != nil {
				return // the terminal has ended; show sends that
			}
		case ptywire.Resize:
			if size, ok := parseSize(payload); ok {
				t.resize(size)
			}
		default:
			t.holder.log.Debug("unknown frame of a terminal's viewer", "kind", string(rune(kind)))
			return
		}
	}
}

// resize sets the terminal's size to that of the viewer that attached or changed last.
func (t *terminal) resize(size ptywire.Size) {
	if size.Height == 0 || size.Width == 0 {
		return
	}
	if err := t.shell.resize(size); err != nil {
		t.holder.log.Debug("cannot resize terminal", "err", err)
	}
}
