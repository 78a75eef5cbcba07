package sshmux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

const (
	// growth is how many bytes all windows of a connection may grow above FirstWindow in total.
	growth = 48 << 20
	// maxQueue is how many channels, requests or global requests may wait for their receiver.
	maxQueue = 16
	// maxReplies is how many requests of a channel, and how many global ones, may be unanswered.
	maxReplies = 256
	readBuffer = 64 << 10
)

// Options configures a Conn.
type Options struct {
	// Server must be set on the end that did not open the stream.
	Server bool
	// MaxChannels limits how many channels of the other end may be open. 0 means 256.
	MaxChannels int
	// Wide makes channels that this end opens start with MaxWindow, within the connection's limit.
	Wide bool
	// Global answers the other end's global requests, one at a time. nil rejects all.
	Global func(name string, payload []byte) (ok bool, answer []byte)
}

// Conn is one end of a connection.
type Conn struct {
	raw  net.Conn
	opts Options
	mine uint32 // highest bit of channel numbers that this end opens

	incoming chan *NewChannel
	globals  chan frame
	ready    chan struct{} // closed when the other end's preamble has arrived
	done     chan struct{} // closed when the connection is over
	ended    sync.WaitGroup

	wmu     sync.Mutex // orders frames; locked before mu
	greeted bool       // the preamble has been sent
	scratch [len(preamble) + 4 + maxFrame]byte

	mu       sync.Mutex // guards the fields below
	err      error
	channels map[uint32]*Channel
	foreign  int // number of channels that the other end opened
	last     uint32
	lastSeen uint32 // the highest channel number that the other end used
	number   uint32
	replies  map[uint32]*Answer
	grown    int // bytes of growth in use
}

// New starts a connection on raw and takes ownership of it. The caller must receive the channels that the other end
// opens.
func New(raw net.Conn, opts Options) *Conn {
	if opts.MaxChannels == 0 {
		opts.MaxChannels = 256
	}
	c := &Conn{
		raw: raw, opts: opts, incoming: make(chan *NewChannel, maxQueue), globals: make(chan frame, maxQueue),
		ready: make(chan struct{}), done: make(chan struct{}), channels: make(map[uint32]*Channel),
		replies: make(map[uint32]*Answer),
	}
	if opts.Server {
		c.mine = byServer
	}
	c.ended.Go(c.readLoop)
	c.ended.Go(c.serveGlobals)
	return c
}

// Channels returns a Go channel with the channels that the other end opens. It is closed when the connection ends.
func (c *Conn) Channels() <-chan *NewChannel { return c.incoming }

// Ready returns a channel that is closed once the other end has shown that it speaks this version of the protocol.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

// Done returns a channel that is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// LocalAddr and RemoteAddr return the stream's addresses.
func (c *Conn) LocalAddr() net.Addr  { return c.raw.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// readLoop processes frames until the stream ends.
func (c *Conn) readLoop() {
	in := bufio.NewReaderSize(c.raw, readBuffer)
	err := c.readPreamble(in)
	for err == nil {
		err = c.readFrame(in)
	}
	c.fail(err)
}

var (
	// ErrVersion means that the other end has shown that it speaks another version of the protocol.
	ErrVersion = errors.New("another version of the session protocol")
	// ErrEarly means that the stream ended before the other end sent anything. Whether it received what this end sent
	// is not known.
	ErrEarly = errors.New("the connection ended before the other end answered")
)

// readPreamble checks that the other end speaks this version.
func (c *Conn) readPreamble(in io.Reader) error {
	var got [len(preamble)]byte
	if _, err := io.ReadFull(in, got[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrEarly, err)
	}
	const name = len(preamble) - 1
	switch {
	case string(got[:]) == preamble:
		close(c.ready)
		return nil
	case string(got[:name]) == preamble[:name]:
		if c.opts.Server {
			c.greet()
		}
		return fmt.Errorf("%w: the other end speaks version %d, this end version %d", ErrVersion, got[name], Version)
	}
	return errProtocol
}

// greet tells a client that speaks another version which version this end speaks.
func (c *Conn) greet() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if !c.greeted {
		c.greeted = true
		_, _ = c.raw.Write([]byte(preamble)) // the connection is about to be closed
	}
}

func (c *Conn) readFrame(in io.Reader) error {
	var head [4 + headerSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	f, n, err := parseHeader(head)
	if err != nil {
		return err
	}
	if f.kind == kindData || f.kind == kindStderr {
		return c.readData(in, f, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := f.parse(body); err != nil {
		return err
	}
	switch f.kind {
	case kindOpen:
		return c.opened(f)
	case kindGlobal:
		select {
		case c.globals <- f:
		case <-c.done:
		}
		return nil
	case kindReply:
		return c.replied(f)
	}
	c.mu.Lock()
	ch := c.channels[f.channel]
	c.mu.Unlock()
	if ch == nil {
		return nil // the frame crossed our close
	}
	return ch.handle(f)
}

func (c *Conn) readData(in io.Reader, f frame, n int) error {
	p := newPiece(n)
	if _, err := io.ReadFull(in, p.rest); err != nil {
		p.free()
		return fmt.Errorf("read data: %w", err)
	}
	c.mu.Lock()
	ch := c.channels[f.channel]
	c.mu.Unlock()
	if ch == nil || n == 0 {
		p.free()
		return nil
	}
	return ch.arrived(p, f.kind == kindStderr)
}

// opened adds a channel that the other end opened.
func (c *Conn) opened(f frame) error {
	c.mu.Lock()
	if f.channel&byServer == c.mine || f.channel&^byServer <= c.lastSeen || f.window > MaxWindow {
		c.mu.Unlock()
		return errProtocol
	}
	if c.err != nil { // what this end refuses must not look like the reason why the connection ends
		defer c.mu.Unlock()
		return c.err
	}
	c.lastSeen = f.channel &^ byServer
	var ch *Channel
	if c.foreign < c.opts.MaxChannels {
		ch = newChannel(c, f.channel)
		ch.room = int(f.window)
		c.channels[ch.id] = ch
		c.foreign++
	}
	c.mu.Unlock()
	if ch == nil {
		return c.send(frame{kind: kindReject, channel: f.channel, reason: uint32(ssh.ResourceShortage),
			data: []byte("too many channels")})
	}
	select {
	case c.incoming <- &NewChannel{ch, f.want, f.name, f.data}:
	case <-c.done:
	}
	return nil
}

// serveGlobals answers global requests.
func (c *Conn) serveGlobals() {
	for {
		var g frame
		select {
		case g = <-c.globals:
		case <-c.done:
			return
		}
		answer := frame{kind: kindReply, number: g.number}
		if c.opts.Global != nil {
			answer.ok, answer.data = c.opts.Global(g.name, g.data)
		}
		if g.number == 0 {
			continue
		}
		if err := c.send(answer); err != nil {
			return
		}
	}
}

func (c *Conn) replied(f frame) error {
	c.mu.Lock()
	waiting := c.replies[f.number]
	delete(c.replies, f.number)
	c.mu.Unlock()
	if waiting == nil {
		return fmt.Errorf("%w: a reply to no request", errProtocol)
	}
	waiting.decide(f.ok, f.data)
	return nil
}

func (c *Conn) send(f frame) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.sendLocked(f)
}

// sendLocked writes a frame. c.wmu must be held.
func (c *Conn) sendLocked(f frame) error {
	b := c.scratch[:0]
	if !c.greeted {
		b = append(b, preamble...)
	}
	b, err := f.append(b)
	if err != nil {
		return err
	}
	c.greeted = true
	if _, err := c.raw.Write(b); err != nil {
		if reason := c.failure(); reason != nil {
			return reason // this end has closed the stream, for a reason that the write does not know
		}
		select {
		case <-c.ready:
			return fmt.Errorf("send: %w", err)
		default:
			return fmt.Errorf("%w: send: %w", ErrEarly, err)
		}
	}
	return nil
}

// fail ends the connection. Only the first reason is kept.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	channels := c.channels
	c.channels = make(map[uint32]*Channel)
	replies := c.replies
	c.replies = make(map[uint32]*Answer)
	close(c.done)
	c.mu.Unlock()
	c.raw.Close()
	for _, ch := range channels {
		ch.shut()
	}
	for _, waiting := range replies {
		waiting.lose()
	}
	go func() { // after the last sender is done
		c.ended.Wait()
		close(c.incoming)
	}()
}

// failure returns why the connection is over, or nil.
func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Open opens a channel. It does not wait: if the other end refuses, the channel is closed, and Read returns the reason
// as an *ssh.OpenChannelError.
func (c *Conn) Open(name string, data []byte) (*Channel, error) { return c.open(name, data, false) }

// OpenConfirmed is like Open, but waits until the other end accepts the channel. It returns an *ssh.OpenChannelError if
// the other end refuses.
func (c *Conn) OpenConfirmed(name string, data []byte) (*Channel, error) {
	ch, err := c.open(name, data, true)
	if err != nil {
		return nil, err
	}
	select {
	case <-ch.accepted:
		return ch, nil
	case <-ch.gone:
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.refused != nil:
		return nil, ch.refused
	case ch.taken:
		return ch, nil // accepted, and already closed again
	}
	return nil, fmt.Errorf("open channel: %w", net.ErrClosed)
}

func (c *Conn) open(name string, data []byte, confirm bool) (*Channel, error) {
	c.wmu.Lock() // opens are sent in the order of their numbers
	defer c.wmu.Unlock()
	window := FirstWindow
	if c.opts.Wide && c.grow(MaxWindow-FirstWindow) {
		window = MaxWindow
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, fmt.Errorf("open channel: %w", c.err)
	}
	c.last++
	ch := newChannel(c, c.last|c.mine)
	ch.window, ch.credit = window, window
	if confirm {
		ch.accepted = make(chan struct{})
	}
	c.channels[ch.id] = ch
	c.mu.Unlock()
	if err := c.sendLocked(frame{kind: kindOpen, channel: ch.id, name: name, want: confirm, window: uint32(window),
		data: data}); err != nil {
		ch.shut()
		return nil, fmt.Errorf("open channel: %w", err)
	}
	return ch, nil
}

// Ask sends a global request without waiting for its answer. The answer is lost if the request cannot be sent or the
// connection ends first.
func (c *Conn) Ask(name string, payload []byte, answer *Answer) error {
	err := c.ask(name, payload, answer)
	if err != nil {
		answer.lose()
	}
	return err
}

func (c *Conn) ask(name string, payload []byte, answer *Answer) error {
	c.mu.Lock()
	switch {
	case c.err != nil:
		defer c.mu.Unlock()
		return c.err
	case len(c.replies) >= maxReplies:
		c.mu.Unlock()
		return errors.New("send request: too many are unanswered")
	}
	c.number++
	number := c.number
	c.replies[number] = answer
	c.mu.Unlock()
	if err := c.send(frame{kind: kindGlobal, number: number, name: name, data: payload}); err != nil {
		c.mu.Lock()
		delete(c.replies, number)
		c.mu.Unlock()
		return err
	}
	return nil
}

// SendRequest sends a global request and, if wantReply is set, waits for its answer.
func (c *Conn) SendRequest(name string, wantReply bool, payload []byte) (bool, []byte, error) {
	if !wantReply {
		err := c.send(frame{kind: kindGlobal, name: name, data: payload})
		return err == nil, nil, err
	}
	answer := NewAnswer()
	if err := c.Ask(name, payload, answer); err != nil {
		return false, nil, err
	}
	if <-answer.Done(); answer.lost {
		return false, nil, c.failure()
	}
	return answer.OK(), answer.Payload(), nil
}

// Close ends the connection and all its channels.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// Wait blocks until the connection is over, and returns the reason: io.EOF if the other end closed it.
func (c *Conn) Wait() error {
	<-c.done
	c.ended.Wait()
	return c.failure()
}
