package sshmux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// largePiece is from which size on a piece gets a pooled buffer.
const largePiece = MaxData / 2

// growTime is how soon growAfter must have been read for a window to grow: no slow reader gets more.
const growTime = 3 * time.Second

// piece is data that arrived.
type piece struct {
	rest []byte
	buf  *[MaxData]byte // that rest lies in; nil if it has its own
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

// channel is one end of a channel: an ssh.Channel.
type channel struct {
	conn     *Conn
	id       uint32
	requests chan *ssh.Request
	gone     chan struct{} // closed with the channel

	rmu sync.Mutex // held while requests receives, and when it is closed

	mu       sync.Mutex // guards the fields below
	change   sync.Cond
	in, err  []piece // what arrived on the two streams and was not read
	eof      bool    // the other end sends no more data
	closed   bool    // no more of anything, in either direction
	sentEOF  bool
	refused  error
	room     int // bytes that may be sent
	credit   int // bytes that the other end may still send
	consumed int // bytes that were read and not credited
	window   int
	since    int       // bytes read since the window grew
	from     time.Time // when that was
}

func newChannel(c *Conn, id uint32) *channel {
	ch := &channel{
		conn: c, id: id, requests: make(chan *ssh.Request, maxQueue), gone: make(chan struct{}),
		room: FirstWindow, credit: FirstWindow, window: FirstWindow, from: time.Now(),
	}
	ch.change.L = &ch.mu
	return ch
}

// handle takes in a frame that is no data.
func (ch *channel) handle(k kind, body []byte) error {
	switch k {
	case kindWindow:
		if len(body) != 4 {
			return errProtocol
		}
		return ch.widen(binary.BigEndian.Uint32(body))
	case kindEOF:
		ch.mu.Lock()
		ch.eof = true
		ch.change.Broadcast()
		ch.mu.Unlock()
	case kindClose:
		ch.shut()
	case kindReject:
		if len(body) < 4 {
			return errProtocol
		}
		ch.mu.Lock()
		ch.refused = &ssh.OpenChannelError{Reason: ssh.RejectionReason(binary.BigEndian.Uint32(body)), Message: string(body[4:])}
		ch.mu.Unlock()
		ch.shut()
	case kindRequest:
		name, payload, err := cutType(body)
		if err != nil {
			return err
		}
		ch.rmu.Lock()
		defer ch.rmu.Unlock()
		if ch.isClosed() {
			return nil
		}
		select {
		case ch.requests <- &ssh.Request{Type: name, Payload: payload}:
		case <-ch.gone:
		}
	default:
		return errProtocol
	}
	return nil
}

// widen lets n bytes more be sent. n is the other end's: it may not fit into an int of 32 bits.
func (ch *channel) widen(n uint32) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if n > 2*MaxWindow || ch.room+int(n) > 2*MaxWindow {
		return errProtocol
	}
	ch.room += int(n)
	ch.change.Broadcast()
	return nil
}

// arrived takes in data.
func (ch *channel) arrived(p piece, stderr bool) error {
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

func (ch *channel) isClosed() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.closed
}

// shut ends the channel. What arrived can still be read.
func (ch *channel) shut() {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return
	}
	ch.closed, ch.eof = true, true
	grown := ch.window - FirstWindow
	close(ch.gone)
	ch.change.Broadcast()
	ch.mu.Unlock()
	ch.rmu.Lock()
	close(ch.requests)
	ch.rmu.Unlock()
	ch.conn.drop(ch, grown)
}

// drop forgets a channel.
func (c *Conn) drop(ch *channel, grown int) {
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

func (ch *channel) Read(b []byte) (int, error) { return ch.read(&ch.in, b) }

func (ch *channel) read(from *[]piece, b []byte) (int, error) {
	ch.mu.Lock()
	for len(*from) == 0 {
		if ch.eof {
			err := io.EOF
			if ch.refused != nil {
				err = ch.refused
			}
			ch.mu.Unlock()
			return 0, err
		}
		ch.change.Wait()
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
	more := ch.consume(n)
	ch.mu.Unlock()
	if more > 0 {
		// A failure ends the connection, which the next Read finds out.
		_ = ch.conn.send(kindWindow, ch.id, binary.BigEndian.AppendUint32(nil, uint32(more)))
	}
	return n, nil
}

// consume counts bytes that were read, and returns how many more the other end is to be told that it may send. ch.mu must be held.
func (ch *channel) consume(n int) (more int) {
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

// grow takes n bytes of the connection's growth.
func (c *Conn) grow(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grown+n > growth {
		return false
	}
	c.grown += n
	return true
}

func (ch *channel) Write(b []byte) (int, error) { return ch.write(kindData, b) }

func (ch *channel) write(k kind, b []byte) (written int, err error) {
	for written < len(b) {
		n, err := ch.reserve(min(len(b)-written, MaxData))
		if err != nil {
			return written, err
		}
		if err := ch.conn.send(k, ch.id, b[written:written+n]); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// reserve waits for room to send, and takes up to most bytes of it.
func (ch *channel) reserve(most int) (int, error) {
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

// CloseWrite tells the other end that no more data comes.
func (ch *channel) CloseWrite() error {
	ch.mu.Lock()
	if ch.closed || ch.sentEOF {
		ch.mu.Unlock()
		return io.EOF
	}
	ch.sentEOF = true
	ch.change.Broadcast()
	ch.mu.Unlock()
	return ch.conn.send(kindEOF, ch.id)
}

// Close ends the channel in both directions.
func (ch *channel) Close() error {
	if ch.isClosed() {
		return io.EOF
	}
	err := ch.conn.send(kindClose, ch.id)
	ch.shut()
	return err
}

// SendRequest sends a request. There are no replies: it reports true unless the channel is closed.
func (ch *channel) SendRequest(name string, _ bool, payload []byte) (bool, error) {
	if len(name) > maxType {
		return false, errors.New("send request: its type is too long")
	}
	if ch.isClosed() {
		return false, io.EOF
	}
	if err := ch.conn.send(kindRequest, ch.id, typeName(name), payload); err != nil {
		return false, err
	}
	return true, nil
}

// Stderr is the extended stream.
func (ch *channel) Stderr() io.ReadWriter { return stderr{ch} }

type stderr struct{ ch *channel }

func (s stderr) Read(b []byte) (int, error)  { return s.ch.read(&s.ch.err, b) }
func (s stderr) Write(b []byte) (int, error) { return s.ch.write(kindStderr, b) }

// newChannelRequest is a channel that the other end wants: an ssh.NewChannel.
type newChannelRequest struct {
	ch    *channel
	name  string
	extra []byte
}

func (r *newChannelRequest) ChannelType() string { return r.name }
func (r *newChannelRequest) ExtraData() []byte   { return r.extra }

func (r *newChannelRequest) Accept() (ssh.Channel, <-chan *ssh.Request, error) {
	if err := r.ch.conn.failure(); err != nil {
		return nil, nil, err
	}
	return r.ch, r.ch.requests, nil
}

func (r *newChannelRequest) Reject(reason ssh.RejectionReason, message string) error {
	err := r.ch.conn.send(kindReject, r.ch.id, rejection(reason, message[:min(len(message), 1024)]))
	r.ch.shut()
	return err
}
