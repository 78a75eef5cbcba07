package sshmux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Bounds of the protocol.
const (
	// MaxData is the most bytes in one data frame.
	MaxData = 32 << 10
	// FirstWindow and MaxWindow bound what may be under way on a channel, in bytes, at first and at most.
	FirstWindow = 2 << 20
	MaxWindow   = 16 << 20

	maxFrame   = MaxData + headerSize
	headerSize = 5  // after the length
	maxType    = 64 // bytes of a type's name
	// growAfter is how many bytes must be read within growTime for a window to grow to MaxWindow.
	growAfter = 256 << 10
	// growth is how many bytes all windows of a connection together may grow above FirstWindow.
	growth = 48 << 20
	// maxQueue is how many channels, requests, or global requests wait for whoever serves them.
	maxQueue = 16
	// maxReplies is how many global requests may be unanswered.
	maxReplies = 256
	readBuffer = 64 << 10
)

type kind byte

const (
	kindOpen kind = iota + 1
	kindReject
	kindData
	kindStderr
	kindWindow
	kindEOF
	kindClose
	kindRequest
	kindGlobal
	kindReply
)

// byServer marks the channels that the server opened.
const byServer = 1 << 31

var errProtocol = errors.New("the other end breaks the protocol")

// Options of a Conn.
type Options struct {
	// Server is the end that did not open the stream.
	Server bool
	// MaxChannels is how many channels the other end may have open. 0 means 256.
	MaxChannels int
	// Wide gives the channels that this end opens MaxWindow from the beginning, as far as the connection's bound allows.
	Wide bool
	// Global answers the other end's global requests, one after the other. nil refuses all.
	Global func(name string, payload []byte) (ok bool, answer []byte)
}

// Conn is one end: an ssh.Conn, for ssh.NewClient with the channels that New returns.
type Conn struct {
	raw  net.Conn
	opts Options
	mine uint32 // highest bit of the channels that this end opens

	incoming chan ssh.NewChannel
	globals  chan global
	requests chan *ssh.Request // never receives: global requests are answered here
	done     chan struct{}     // closed when the connection is over
	ended    sync.WaitGroup

	wmu     sync.Mutex // orders frames; taken before mu
	scratch [4 + maxFrame]byte

	mu       sync.Mutex // guards the fields below
	err      error
	channels map[uint32]*channel
	foreign  int // channels among them that the other end opened
	last     uint32
	lastSeen uint32 // the highest number the other end used
	number   uint32
	replies  map[uint32]chan reply
	grown    int // bytes of growth in use
}

type global struct {
	name    string
	number  uint32
	payload []byte
}

type reply struct {
	ok      bool
	payload []byte
}

// New begins to speak on raw, which is the connection's from then on. Whoever calls it serves the channels that the other end
// opens; the requests channel is for ssh.NewClient, and is closed at the end.
func New(raw net.Conn, opts Options) (*Conn, <-chan ssh.NewChannel, <-chan *ssh.Request) {
	if opts.MaxChannels == 0 {
		opts.MaxChannels = 256
	}
	c := &Conn{
		raw: raw, opts: opts, incoming: make(chan ssh.NewChannel, maxQueue), globals: make(chan global, maxQueue),
		requests: make(chan *ssh.Request), done: make(chan struct{}), channels: make(map[uint32]*channel), replies: make(map[uint32]chan reply),
	}
	if opts.Server {
		c.mine = byServer
	}
	c.ended.Go(c.readLoop)
	c.ended.Go(c.serveGlobals)
	return c, c.incoming, c.requests
}

// readLoop takes frames in until the stream ends.
func (c *Conn) readLoop() {
	in := bufio.NewReaderSize(c.raw, readBuffer)
	for {
		if err := c.readFrame(in); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Conn) readFrame(in io.Reader) error {
	var head [4 + headerSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < headerSize || length > maxFrame {
		return errProtocol
	}
	k, id, n := kind(head[4]), binary.BigEndian.Uint32(head[5:]), int(length)-headerSize
	if k == kindData || k == kindStderr {
		return c.readData(in, k, id, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	switch k {
	case kindOpen:
		return c.opened(id, body)
	case kindGlobal:
		return c.global(body)
	case kindReply:
		return c.replied(body)
	}
	c.mu.Lock()
	ch := c.channels[id]
	c.mu.Unlock()
	if ch == nil {
		return nil // it crossed our close
	}
	return ch.handle(k, body)
}

func (c *Conn) readData(in io.Reader, k kind, id uint32, n int) error {
	p := newPiece(n)
	if _, err := io.ReadFull(in, p.rest); err != nil {
		p.free()
		return fmt.Errorf("read data: %w", err)
	}
	c.mu.Lock()
	ch := c.channels[id]
	c.mu.Unlock()
	if ch == nil || n == 0 {
		p.free()
		return nil
	}
	return ch.arrived(p, k == kindStderr)
}

// opened takes in a channel that the other end opened.
func (c *Conn) opened(id uint32, body []byte) error {
	name, extra, err := cutType(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if id&byServer == c.mine || id&^byServer <= c.lastSeen {
		c.mu.Unlock()
		return errProtocol
	}
	c.lastSeen = id &^ byServer
	full := c.foreign >= c.opts.MaxChannels
	var ch *channel
	if !full && c.err == nil {
		ch = newChannel(c, id)
		c.channels[id] = ch
		c.foreign++
	}
	c.mu.Unlock()
	if ch == nil {
		return c.send(kindReject, id, rejection(ssh.ResourceShortage, "too many channels"))
	}
	select {
	case c.incoming <- &newChannelRequest{ch, name, extra}:
	case <-c.done:
	}
	return nil
}

func (c *Conn) global(body []byte) error {
	name, rest, err := cutType(body)
	if err != nil || len(rest) < 4 {
		return errProtocol
	}
	select {
	case c.globals <- global{name, binary.BigEndian.Uint32(rest), rest[4:]}:
	case <-c.done:
	}
	return nil
}

// serveGlobals answers global requests.
func (c *Conn) serveGlobals() {
	for {
		var g global
		select {
		case g = <-c.globals:
		case <-c.done:
			return
		}
		answer := []byte{0}
		if c.opts.Global != nil {
			if ok, payload := c.opts.Global(g.name, g.payload); ok {
				answer = append([]byte{1}, payload...)
			}
		}
		if g.number == 0 {
			continue
		}
		if err := c.send(kindReply, 0, append(binary.BigEndian.AppendUint32(nil, g.number), answer...)); err != nil {
			return
		}
	}
}

func (c *Conn) replied(body []byte) error {
	if len(body) < 5 {
		return errProtocol
	}
	number := binary.BigEndian.Uint32(body)
	c.mu.Lock()
	waiting := c.replies[number]
	delete(c.replies, number)
	c.mu.Unlock()
	if waiting == nil {
		return errProtocol
	}
	waiting <- reply{body[4] == 1, body[5:]} // capacity 1, and nobody else has it
	return nil
}

// send writes one frame: parts follow each other in it.
func (c *Conn) send(k kind, id uint32, parts ...[]byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.sendLocked(k, id, parts...)
}

// sendLocked is send with c.wmu held.
func (c *Conn) sendLocked(k kind, id uint32, parts ...[]byte) error {
	frame := c.scratch[:4]
	frame = append(frame, byte(k))
	frame = binary.BigEndian.AppendUint32(frame, id)
	for _, part := range parts {
		if len(frame)+len(part) > len(c.scratch) {
			return errors.New("the message is too long")
		}
		frame = append(frame, part...)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := c.raw.Write(frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// fail ends the connection. The first reason counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	channels := c.channels
	c.channels = make(map[uint32]*channel)
	replies := c.replies
	c.replies = make(map[uint32]chan reply)
	close(c.done)
	c.mu.Unlock()
	c.raw.Close()
	for _, ch := range channels {
		ch.shut()
	}
	for _, waiting := range replies {
		close(waiting)
	}
	go func() { // nobody sends to them any more then
		c.ended.Wait()
		close(c.incoming)
		close(c.requests)
	}()
}

// failure is why the connection is over, or nil.
func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// OpenChannel opens a channel. It does not wait: if the other end refuses, the channel is closed.
func (c *Conn) OpenChannel(name string, data []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	if len(name) > maxType {
		return nil, nil, errors.New("open channel: its type is too long")
	}
	c.wmu.Lock() // opens are sent in the order of their numbers
	c.mu.Lock()
	if c.err != nil {
		defer c.wmu.Unlock()
		defer c.mu.Unlock()
		return nil, nil, fmt.Errorf("open channel: %w", c.err)
	}
	c.last++
	ch := newChannel(c, c.last|c.mine)
	c.channels[ch.id] = ch
	c.mu.Unlock()
	err := c.sendLocked(kindOpen, ch.id, typeName(name), data)
	if err == nil && c.opts.Wide && c.grow(MaxWindow-FirstWindow) {
		ch.mu.Lock()
		ch.window, ch.credit = MaxWindow, MaxWindow
		ch.mu.Unlock()
		err = c.sendLocked(kindWindow, ch.id, binary.BigEndian.AppendUint32(nil, MaxWindow-FirstWindow))
	}
	c.wmu.Unlock()
	if err != nil {
		ch.shut()
		return nil, nil, fmt.Errorf("open channel: %w", err)
	}
	return ch, ch.requests, nil
}

// SendRequest sends a global request, and waits for its answer if one is wanted.
func (c *Conn) SendRequest(name string, wantReply bool, payload []byte) (bool, []byte, error) {
	var number uint32
	var waiting chan reply
	if wantReply {
		waiting = make(chan reply, 1)
		c.mu.Lock()
		switch {
		case c.err != nil:
			defer c.mu.Unlock()
			return false, nil, c.err
		case len(c.replies) >= maxReplies:
			c.mu.Unlock()
			return false, nil, errors.New("send request: too many are unanswered")
		}
		c.number++
		number = c.number
		c.replies[number] = waiting
		c.mu.Unlock()
	}
	if err := c.send(kindGlobal, 0, typeName(name), binary.BigEndian.AppendUint32(nil, number), payload); err != nil {
		return false, nil, err
	}
	if !wantReply {
		return true, nil, nil
	}
	r, ok := <-waiting
	if !ok {
		return false, nil, c.failure()
	}
	return r.ok, r.payload, nil
}

// Close ends the connection and all its channels.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// Wait blocks until the connection is over, and returns why: io.EOF when the other end closed it.
func (c *Conn) Wait() error {
	<-c.done
	c.ended.Wait()
	return c.failure()
}

// The rest of ssh.ConnMetadata. There is no user, version or session on such a connection.
func (c *Conn) User() string          { return "" }
func (c *Conn) SessionID() []byte     { return nil }
func (c *Conn) ClientVersion() []byte { return nil }
func (c *Conn) ServerVersion() []byte { return nil }
func (c *Conn) LocalAddr() net.Addr   { return c.raw.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr  { return c.raw.RemoteAddr() }

func typeName(name string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(name))), name...)
}

func cutType(body []byte) (name string, rest []byte, err error) {
	if len(body) < 2 {
		return "", nil, errProtocol
	}
	n := int(binary.BigEndian.Uint16(body))
	if n > maxType || len(body) < 2+n {
		return "", nil, errProtocol
	}
	return string(body[2 : 2+n]), body[2+n:], nil
}

func rejection(reason ssh.RejectionReason, text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(reason)), text...)
}
