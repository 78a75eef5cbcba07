package sshmux

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// largePiece is the size in bytes from which a piece gets a pooled buffer.
const largePiece = MaxData / 2

// growAfter is how many bytes must be read within growTime for a window to grow to MaxWindow. Slow readers keep the
// smaller one.
const (
	growAfter = 256 << 10
	growTime  = 3 * time.Second
)

// piece is received data.
type piece struct {
	rest []byte
	buf  *[MaxData]byte // pooled buffer that holds rest; nil if rest has its own
}

var pieceBuffers = sync.Pool{New: func() any { return new([MaxData]byte) }}

func newPiece(n int) piece {
	if n < largePiece {
		return piece{rest: make([]byte, n)}
	}
	buf := pieceBuffers.Get().(*[MaxData]byte)
	return piece{rest: buf[:n], buf: buf}
}

func (p piece) free() {
	if p.buf != nil {
		pieceBuffers.Put(p.buf)
	}
}

// Channel is one end of a channel. It has the methods of an ssh.Channel.
type Channel struct {
	conn     *Conn
	id       uint32
	requests chan *Request
	gone     chan struct{} // closed with the channel
	accepted chan struct{} // closed when the other end accepts the channel; nil if no answer was requested

	rmu   sync.Mutex // held while sending to requests and while closing it; guards parts
	parts []byte     // of a long request that has not arrived completely

	mu       sync.Mutex // guards the fields below
	change   sync.Cond
	in, err  []piece // unread data of the two streams
	eof      bool    // the other end will not send more data
	closed   bool    // nothing more is sent or received
	sentEOF  bool
	refused  error
	taken    bool      // accepted is closed
	asked    []*Answer // unanswered requests, in order
	room     int       // bytes that may be sent
	credit   int       // bytes that the other end may still send
	consumed int       // bytes read but not yet credited
	window   int
	since    int       // bytes read since the window grew
	from     time.Time // when the window grew
}

func newChannel(c *Conn, id uint32) *Channel {
	ch := &Channel{
		conn: c, id: id, requests: make(chan *Request, maxQueue), gone: make(chan struct{}),
		room: FirstWindow, credit: FirstWindow, window: FirstWindow, from: time.Now(),
	}
	ch.change.L = &ch.mu
	return ch
}

// Requests returns a Go channel with the other end's requests. The caller must receive from it until it is closed,
// which happens when ch closes.
func (ch *Channel) Requests() <-chan *Request { return ch.requests }

// handle processes a frame other than data.
func (ch *Channel) handle(f frame) error {
	switch f.kind {
	case kindAccept:
		return ch.take()
	case kindWindow:
		return ch.widen(f.window)
	case kindEOF:
		ch.mu.Lock()
		ch.eof = true
		ch.change.Broadcast()
		ch.mu.Unlock()
	case kindClose:
		ch.shut()
	case kindReject:
		ch.mu.Lock()
		ch.refused = &ssh.OpenChannelError{Reason: ssh.RejectionReason(f.reason), Message: string(f.data)}
		ch.mu.Unlock()
		ch.shut()
	case kindAnswer:
		return ch.answered(f.ok)
	case kindRequest:
		ch.rmu.Lock()
		defer ch.rmu.Unlock()
		if ch.isClosed() {
			return nil
		}
		if len(ch.parts)+len(f.data) > MaxRequest || f.name == partName && f.want {
			return fmt.Errorf("%w: a request of more than %d bytes", errProtocol, MaxRequest)
		}
		if f.name == partName {
			ch.parts = append(ch.parts, f.data...)
			return nil
		}
		payload := f.data
		if len(ch.parts) > 0 {
			payload, ch.parts = slices.Concat(ch.parts, f.data), nil
		}
		select {
		case ch.requests <- &Request{Type: f.name, WantReply: f.want, Payload: payload, ch: ch}:
		case <-ch.gone:
		}
	default:
		return errProtocol
	}
	return nil
}

// take records that the other end has accepted the channel.
func (ch *Channel) take() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.accepted == nil || ch.taken {
		return fmt.Errorf("%w: it accepts a channel that nothing waits for", errProtocol)
	}
	ch.taken = true
	close(ch.accepted)
	return nil
}

// answered delivers an answer to the oldest unanswered request.
func (ch *Channel) answered(ok bool) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.closed:
		return nil
	case len(ch.asked) == 0:
		return fmt.Errorf("%w: an answer to no request", errProtocol)
	}
	ch.asked[0].decide(ok, nil)
	ch.asked = ch.asked[1:]
	return nil
}

// widen allows n more bytes to be sent. n comes from the other end, so it may overflow a 32-bit int.
func (ch *Channel) widen(n uint32) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if n > 2*MaxWindow || ch.room+int(n) > 2*MaxWindow {
		return errProtocol
	}
	ch.room += int(n)
	ch.change.Broadcast()
	return nil
}

// arrived queues received data.
func (ch *Channel) arrived(p piece, stderr bool) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(p.rest) > ch.credit {
		p.free()
		return fmt.Errorf("%w: it sent more than the window", errProtocol)
	}
	ch.credit -= len(p.rest)
	switch {
	case ch.closed || ch.eof:
		p.free()
	case stderr:
		ch.err = append(ch.err, p)
	default:
		ch.in = append(ch.in, p)
	}
	ch.change.Broadcast()
	return nil
}

func (ch *Channel) isClosed() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.closed
}

// shut ends the channel. Received data can still be read.
func (ch *Channel) shut() {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return
	}
	ch.closed, ch.eof = true, true
	grown := ch.window - FirstWindow
	for _, waiting := range ch.asked {
		waiting.lose()
	}
	ch.asked = nil
	close(ch.gone)
	ch.change.Broadcast()
	ch.mu.Unlock()
	ch.rmu.Lock()
	close(ch.requests)
	ch.rmu.Unlock()
	ch.conn.drop(ch, grown)
}

// drop removes a channel from the connection.
func (c *Conn) drop(ch *Channel, grown int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grown -= grown
	if c.channels[ch.id] == ch {
		delete(c.channels, ch.id)
		if ch.id&byServer != c.mine {
			c.foreign--
		}
	}
}

func (ch *Channel) Read(b []byte) (int, error) { return ch.read(&ch.in, b) }

func (ch *Channel) read(from *[]piece, b []byte) (int, error) {
	ch.mu.Lock()
	if err := ch.await(from); err != nil {
		ch.mu.Unlock()
		return 0, err
	}
	n := 0
	for n < len(b) && len(*from) > 0 {
		p := &(*from)[0]
		m := copy(b[n:], p.rest)
		n += m
		if p.rest = p.rest[m:]; len(p.rest) == 0 {
			p.free()
			(*from)[0] = piece{}
			*from = (*from)[1:]
		}
	}
	ch.mu.Unlock()
	ch.credited(n)
	return n, nil
}

// WriteTo writes incoming data to w without copying, until the other end stops sending. The end of the data is not an
// error.
func (ch *Channel) WriteTo(w io.Writer) (int64, error) { return ch.writeTo(&ch.in, w) }

func (ch *Channel) writeTo(from *[]piece, w io.Writer) (total int64, err error) {
	for {
		p, err := ch.next(from)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		n, err := w.Write(p.rest)
		total += int64(n)
		size := len(p.rest)
		p.free()
		if err != nil {
			return total, err
		}
		ch.credited(size)
	}
}

// next removes the first piece of a stream and returns it. The caller must free it.
func (ch *Channel) next(from *[]piece) (piece, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if err := ch.await(from); err != nil {
		return piece{}, err
	}
	p := (*from)[0]
	(*from)[0] = piece{}
	*from = (*from)[1:]
	return p, nil
}

// await blocks until something has arrived on a stream. ch.mu must be held.
func (ch *Channel) await(from *[]piece) error {
	for len(*from) == 0 {
		switch {
		case ch.eof && ch.refused != nil:
			return ch.refused
		case ch.eof:
			return io.EOF
		}
		ch.change.Wait()
	}
	return nil
}

// credited records that n more bytes were read, and from time to time notifies the other end.
func (ch *Channel) credited(n int) {
	ch.mu.Lock()
	more := ch.consume(n)
	ch.mu.Unlock()
	if more > 0 {
		// A failure ends the connection, and the next Read reports it.
		_ = ch.conn.send(frame{kind: kindWindow, channel: ch.id, window: uint32(more)})
	}
}

// consume counts read bytes, and returns how many bytes of credit to send to the other end. ch.mu must be held.
func (ch *Channel) consume(n int) (more int) {
	ch.consumed += n
	if ch.closed {
		return 0
	}
	if ch.since += n; ch.since >= growAfter && ch.window < MaxWindow {
		if time.Since(ch.from) < growTime && ch.conn.grow(MaxWindow-FirstWindow) {
			more = MaxWindow - FirstWindow
			ch.window = MaxWindow
		}
		ch.since, ch.from = 0, time.Now()
	}
	if more > 0 || ch.consumed >= FirstWindow/4 {
		more += ch.consumed
		ch.consumed = 0
	}
	ch.credit += more
	return more
}

// grow reserves n bytes of the connection's growth and reports whether they were available.
func (c *Conn) grow(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grown+n > growth {
		return false
	}
	c.grown += n
	return true
}

func (ch *Channel) Write(b []byte) (int, error) { return ch.write(kindData, b) }

func (ch *Channel) write(k kind, b []byte) (written int, err error) {
	for written < len(b) {
		n, err := ch.reserve(min(len(b)-written, MaxData))
		if err != nil {
			return written, err
		}
		if err := ch.conn.send(frame{kind: k, channel: ch.id, data: b[written : written+n]}); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// reserve waits for room to send, and reserves up to most bytes of it.
func (ch *Channel) reserve(most int) (int, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for ch.room == 0 && !ch.closed && !ch.sentEOF {
		ch.change.Wait()
	}
	if ch.closed || ch.sentEOF {
		return 0, io.EOF
	}
	n := min(most, ch.room)
	ch.room -= n
	return n, nil
}

// CloseWrite tells the other end that no more data follows.
func (ch *Channel) CloseWrite() error {
	ch.mu.Lock()
	if ch.closed || ch.sentEOF {
		ch.mu.Unlock()
		return io.EOF
	}
	ch.sentEOF = true
	ch.change.Broadcast()
	ch.mu.Unlock()
	return ch.conn.send(frame{kind: kindEOF, channel: ch.id})
}

// Close ends the channel in both directions.
func (ch *Channel) Close() error {
	if ch.isClosed() {
		return io.EOF
	}
	err := ch.conn.send(frame{kind: kindClose, channel: ch.id})
	ch.shut()
	return err
}

// Ask sends a request without waiting for its answer. The answer is lost if the request cannot be sent or the channel
// ends first.
func (ch *Channel) Ask(name string, payload []byte, answer *Answer) error {
	err := ch.ask(frame{kind: kindRequest, channel: ch.id, name: name, want: true, data: payload}, answer)
	if err != nil {
		answer.lose()
	}
	return err
}

func (ch *Channel) ask(f frame, answer *Answer) error {
	ch.conn.wmu.Lock() // answers arrive in the order of the requests
	defer ch.conn.wmu.Unlock()
	ch.mu.Lock()
	switch {
	case ch.closed:
		ch.mu.Unlock()
		return io.EOF
	case len(ch.asked) >= maxReplies:
		ch.mu.Unlock()
		return errors.New("send request: too many are unanswered")
	}
	ch.asked = append(ch.asked, answer)
	ch.mu.Unlock()
	if err := ch.sendRequestLocked(f); err != nil {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		if n := len(ch.asked) - 1; n >= 0 && ch.asked[n] == answer {
			ch.asked = ch.asked[:n] // the request was not sent
		}
		return err
	}
	return nil
}

// SendRequest sends a request and, if wantReply is set, waits for its answer. Otherwise it reports true.
func (ch *Channel) SendRequest(name string, wantReply bool, payload []byte) (bool, error) {
	if !wantReply {
		if ch.isClosed() {
			return false, io.EOF
		}
		ch.conn.wmu.Lock()
		defer ch.conn.wmu.Unlock()
		err := ch.sendRequestLocked(frame{kind: kindRequest, channel: ch.id, name: name, data: payload})
		return err == nil, err
	}
	answer := NewAnswer()
	if err := ch.Ask(name, payload, answer); err != nil {
		return false, err
	}
	if <-answer.Done(); answer.lost {
		return false, io.EOF
	}
	return answer.OK(), nil
}

// sendRequestLocked sends a request, a long one in parts. conn.wmu must be held.
func (ch *Channel) sendRequestLocked(f frame) error {
	if len(f.data) > MaxRequest {
		return errTooLong
	}
	for len(f.data) > maxPart {
		if err := ch.conn.sendLocked(frame{kind: kindRequest, channel: ch.id, name: partName,
			data: f.data[:maxPart]}); err != nil {
			return err
		}
		f.data = f.data[maxPart:]
	}
	return ch.conn.sendLocked(f)
}

// Stderr returns the extended stream.
func (ch *Channel) Stderr() io.ReadWriter { return stderr{ch} }

type stderr struct{ ch *Channel }

func (s stderr) Read(b []byte) (int, error)         { return s.ch.read(&s.ch.err, b) }
func (s stderr) WriteTo(w io.Writer) (int64, error) { return s.ch.writeTo(&s.ch.err, w) }
func (s stderr) Write(b []byte) (int, error)        { return s.ch.write(kindStderr, b) }

// Answer is the answer to a request. It may not have arrived yet.
type Answer struct {
	once    sync.Once
	done    chan struct{}
	ok      bool
	payload []byte
	lost    bool // the request was never answered
}

// NewAnswer returns an Answer to pass to Ask.
func NewAnswer() *Answer { return &Answer{done: make(chan struct{})} }

// decide sets the answer. Only the first call counts, since an answer may arrive while it is being given up.
func (a *Answer) decide(ok bool, payload []byte) {
	a.once.Do(func() {
		a.ok, a.payload = ok, payload
		close(a.done)
	})
}

func (a *Answer) lose() {
	a.once.Do(func() {
		a.lost = true
		close(a.done)
	})
}

// Done returns a channel that is closed when the answer has arrived or is lost.
func (a *Answer) Done() <-chan struct{} { return a.done }

// OK waits for the answer. It also returns false if the answer is lost.
func (a *Answer) OK() bool { <-a.done; return a.ok }

// Payload waits for the answer to a global request and returns its payload.
func (a *Answer) Payload() []byte { <-a.done; return a.payload }

// Request is a request of the other end on a channel.
type Request struct {
	Type      string
	WantReply bool
	Payload   []byte
	ch        *Channel
}

// Reply answers a request that wants a reply, and does nothing for others. Requests must be answered in the order in
// which they arrived.
func (r *Request) Reply(ok bool) error {
	if !r.WantReply || r.ch.isClosed() {
		return nil
	}
	return r.ch.conn.send(frame{kind: kindAnswer, channel: r.ch.id, ok: ok})
}

// NewChannel is a request of the other end to open a channel. It must be accepted or rejected.
type NewChannel struct {
	ch      *Channel
	confirm bool
	name    string
	data    []byte
}

// Type returns the requested type of channel, and Data the type-specific data.
func (r *NewChannel) Type() string { return r.name }
func (r *NewChannel) Data() []byte { return r.data }

// Accept accepts the channel.
func (r *NewChannel) Accept() (*Channel, error) {
	if err := r.ch.conn.failure(); err != nil {
		return nil, err
	}
	if r.confirm {
		if err := r.ch.conn.send(frame{kind: kindAccept, channel: r.ch.id}); err != nil {
			return nil, err
		}
	}
	return r.ch, nil
}

// maxReason is the maximum length of a rejection's message, in bytes.
const maxReason = 1024

// Reject refuses the channel and sends the reason to the other end.
func (r *NewChannel) Reject(reason ssh.RejectionReason, message string) error {
	text := []byte(message[:min(len(message), maxReason)])
	err := r.ch.conn.send(frame{kind: kindReject, channel: r.ch.id, reason: uint32(reason), data: text})
	r.ch.shut()
	return err
}
