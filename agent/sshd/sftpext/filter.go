package sftpext

import (
	"encoding/binary"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
)

// extensions are announced with their versions.
var extensions = [][2]string{{"copy-data", "1"}, {"expand-path@openssh.com", "1"}, {"limits@openssh.com", "1"}}

var errPacket = errors.New("sftp: bad packet length")

// Options configure a Filter.
type Options struct {
	// Directory is where relative paths start.
	Directory string
	// Home returns the home folder of an account, of the session's own for "".
	Home func(account string) (string, error)
	// Ended is closed when the client is gone. It ends a copy in progress.
	Ended <-chan struct{}
}

// Filter is a client's connection as the server sees it: an io.ReadWriteCloser. One goroutine may read while another
// one writes.
type Filter struct {
	client io.ReadWriter
	opts   Options

	// Owned by the reader.
	head    [headLen]byte
	pending []byte     // what the server reads next
	rest    int        // how much of the current packet it then reads from the client
	copying *duplicate // answers go to it

	// Owned by the writer.
	held    []byte // the beginning of an answer that must be seen as a whole
	holding bool
	passing int // how much of an answer still passes

	replies chan []byte   // the answer to the request of copying, valid until the next request
	idle    chan struct{} // has an element after inFlight has become 0
	closed  chan struct{}
	close   func()

	mu       sync.Mutex // guards the fields below
	inFlight int        // requests that the server has not answered
	mine     bool       // the request in flight is of copying
	opening  map[uint32]string
	names    map[string]string // of the files of open handles
}

// New returns a filter for one session. It does not close the client's channel.
func New(client io.ReadWriter, opts Options) *Filter {
	f := &Filter{
		client: client, opts: opts, replies: make(chan []byte, 1), idle: make(chan struct{}, 1),
		closed:  make(chan struct{}),
		opening: map[uint32]string{}, names: map[string]string{},
	}
	f.close = sync.OnceFunc(func() { close(f.closed) })
	return f
}

// Close ends a copy in progress and further reading. It does not interrupt a Read that waits for the client.
func (f *Filter) Close() error {
	f.close()
	return nil
}

// Read reads the client's requests, and those that the filter adds.
func (f *Filter) Read(b []byte) (int, error) {
	for {
		switch {
		case len(b) == 0:
			return 0, nil
		case len(f.pending) > 0:
			n := copy(b, f.pending)
			f.pending = f.pending[n:]
			return n, nil
		case f.rest > 0:
			n, err := f.client.Read(b[:min(len(b), f.rest)])
			f.rest -= n
			return n, err
		}
		var err error
		if f.copying != nil {
			err = f.proceed()
		} else {
			err = f.receive()
		}
		if err != nil {
			return 0, err
		}
	}
}

// receive begins the client's next packet.
func (f *Filter) receive() error {
	select {
	case <-f.closed:
		return io.EOF
	default:
	}
	if _, err := io.ReadFull(f.client, f.head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(f.head[:])
	if length == 0 || length > MaxPacket {
		return errPacket
	}
	switch f.head[4] {
	case typeOpen, typeClose, typeExtended:
	default:
		f.forward(f.head[:], int(length)-1)
		return nil
	}
	packet := make([]byte, 4+length)
	copy(packet, f.head[:])
	if _, err := io.ReadFull(f.client, packet[headLen:]); err != nil {
		return unexpected(err)
	}
	fields := fieldsOf(packet)
	switch packet[4] {
	case typeOpen:
		if id, name := fields.uint32(), fields.string(); fields.ok {
			f.mu.Lock()
			f.opening[id] = f.absolute(name)
			f.mu.Unlock()
		}
	case typeClose:
		fields.uint32()
		f.mu.Lock()
		delete(f.names, fields.string())
		f.mu.Unlock()
	case typeExtended:
		id, name := fields.uint32(), fields.string()
		if handle := f.extension(name); handle != nil && fields.ok {
			return handle(id, &fields)
		}
	}
	f.forward(packet, 0)
	return nil
}

// unexpected is the error of a packet that is cut off.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// forward lets the server read a packet's beginning, and then the rest of it from the client.
func (f *Filter) forward(packet []byte, rest int) {
	f.mu.Lock()
	f.inFlight++
	f.mu.Unlock()
	f.pending, f.rest = packet, rest
}

// extension returns what handles an extended request; nil leaves it to the server.
func (f *Filter) extension(name string) func(id uint32, args *fields) error {
	switch name {
	case "copy-data":
		return f.copyData
	case "expand-path@openssh.com":
		return f.expandPath
	case "limits@openssh.com":
		return f.limits
	}
	return nil
}

func (f *Filter) copyData(id uint32, args *fields) error {
	d, ok := parseCopy(id, args)
	if !ok {
		return f.answer(status(id, statusBadMessage, "bad message"))
	}
	if err := f.drain(); err != nil {
		return err
	}
	if f.sameFile(d.from, d.to) {
		return f.answer(status(id, statusFailure, "source and destination are the same file"))
	}
	f.copying = d
	f.mu.Lock()
	f.mine = true
	f.mu.Unlock()
	f.forward(d.read(), 0)
	return nil
}

// proceed continues a copy once the server has answered its last request.
func (f *Filter) proceed() error {
	var reply []byte
	select {
	case reply = <-f.replies:
	case <-f.opts.Ended:
		return io.EOF
	case <-f.closed:
		return io.EOF
	}
	request, answer := f.copying.next(reply)
	if request != nil {
		f.forward(request, 0)
		return nil
	}
	f.copying = nil
	f.mu.Lock()
	f.mine = false
	f.mu.Unlock()
	return f.answer(answer)
}

// sameFile reports whether two handles are the same or were opened with the same path, as OpenSSH's server does.
func (f *Filter) sameFile(a, b string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, known := f.names[a]
	return a == b || known && name == f.names[b]
}

// absolute makes paths of a session comparable.
func (f *Filter) absolute(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(f.opts.Directory, name)
	}
	return path.Clean(name)
}

// expandPath resolves a path as REALPATH does, after it has put a home folder in the place of "~" or "~account".
func (f *Filter) expandPath(id uint32, args *fields) error {
	name := args.string()
	if !args.ok {
		return f.answer(status(id, statusBadMessage, "bad message"))
	}
	if after, ok := strings.CutPrefix(name, "~"); ok {
		account, rest, _ := strings.Cut(after, "/")
		home, err := f.opts.Home(account)
		if err != nil {
			return f.answer(status(id, statusNoFile, err.Error()))
		}
		name = path.Join(home, rest)
	}
	f.forward(finish(appendString(begin(nil, typeRealpath, id), name)), 0)
	return nil
}

// limits answers with packet, read and write size, and with 0 for the number of handles, which means that it is not
// known.
func (f *Filter) limits(id uint32, _ *fields) error {
	b := begin(nil, typeReply, id)
	for _, n := range []uint64{MaxPacket, MaxData, MaxData, 0} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return f.answer(finish(b))
}

// answer sends the client an answer after all those of the server.
func (f *Filter) answer(packet []byte) error {
	if err := f.drain(); err != nil {
		return err
	}
	_, err := f.client.Write(packet)
	return err
}

// drain waits until the server has answered all requests.
func (f *Filter) drain() error {
	for {
		f.mu.Lock()
		n := f.inFlight
		f.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-f.idle:
		case <-f.opts.Ended:
			return io.EOF
		case <-f.closed:
			return io.EOF
		}
	}
}
