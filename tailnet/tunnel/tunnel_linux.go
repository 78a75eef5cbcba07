package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

const (
	// MTU is that of the device, in bytes: packets stay on the machine.
	MTU = 1<<16 - 1
	// head is the room before a packet that the device needs for its own header, in bytes.
	head = 16
	// maxTCP and maxUDP bound what is open, and maxEchoes the echo requests that wait for the owner.
	maxTCP, maxUDP, maxEchoes = 4096, 1024, 64
	// resetGrace is how long resets have to leave before the device is closed.
	resetGrace = 100 * time.Millisecond
)

// Conn is a program's TCP connection.
type Conn interface {
	net.Conn
	CloseWrite() error
	// Abort ends the connection with a reset.
	Abort()
}

// Options configures a Tunnel. All are required, except the logger. The callbacks may be called at the same time.
type Options struct {
	Machine netip.Addr   // the machine's own address in the tunnel
	Addr    netip.Addr   // the tunnel's own, in Prefix
	Prefix  netip.Prefix // which addresses can be reached
	Logger  *slog.Logger

	// AcceptTCP returns the handler of a connection that a program opens, or nil to refuse it. It may block, for as
	// long as the program waits for the answer to its SYN, until ctx ends. The handler owns its connection. It gets nil
	// if the program gives up.
	AcceptTCP func(ctx context.Context, dst netip.AddrPort) func(Conn)
	// AcceptUDP is like AcceptTCP for a flow.
	AcceptUDP func(ctx context.Context, dst netip.AddrPort) func(net.Conn)
	// Echo reports whether an address answers echo requests. It may block.
	Echo func(ctx context.Context, dst netip.Addr) bool
}

// Create creates a TUN device, which exists until all copies of the file are closed. That needs the right to administer
// the network.
func Create(name string) (*os.File, error) {
	device, err := tun.CreateTUN(name, MTU)
	if err != nil {
		return nil, fmt.Errorf("create network device %s: %w", name, err)
	}
	return device.File(), nil
}

// Tunnel is a TUN device with a network stack. Make one with New.
type Tunnel struct {
	opts   Options
	log    *slog.Logger
	device tun.Device
	link   *ipstack.Link
	stack  *ipstack.Stack

	run     context.Context // ends with Close
	cancel  context.CancelFunc
	serving sync.WaitGroup // handlers and questions; grows while closed is false

	mu     sync.Mutex // guards the fields below
	closed bool
	flows  map[*flow]struct{}
	counts [3]int // of each kind
}

type kind int

const (
	tcp kind = iota
	udp
	echo
)

var limits = [3]int{tcp: maxTCP, udp: maxUDP, echo: maxEchoes}

// flow is a connection, a flow, or an echo request that waits for the owner.
type flow struct {
	kind  kind
	abort func() // Tunnel.mu guards it
}

// New returns a tunnel that carries nothing before Run. fd is the descriptor of a device that Create made, of which
// this process has no *os.File; the tunnel owns it. The caller must close the tunnel.
func New(fd int, opts Options) (*Tunnel, error) {
	device, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, fmt.Errorf("open network device: %w", err)
	}
	return newTunnel(device, opts)
}

func newTunnel(device tun.Device, opts Options) (*Tunnel, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tunnel{opts: opts, log: opts.Logger, device: device, flows: map[*flow]struct{}{}}
	t.run, t.cancel = context.WithCancel(context.Background())
	t.link = ipstack.NewLink(nil, MTU)
	t.link.Admit = t.admit
	stack, err := ipstack.New(t.link, ipstack.Options{
		Addr: opts.Addr, Others: opts.Prefix, Log: t.log,
		Admit:     func(src, _ netip.AddrPort) bool { return src.Addr() == opts.Machine },
		AcceptTCP: t.acceptTCP, AcceptUDP: t.acceptUDP,
	})
	if err != nil {
		return nil, err
	}
	t.stack = stack
	return t, nil
}

// Run carries packets until Close, and returns nil then, or until the device fails.
func (t *Tunnel) Run() error {
	var writing sync.WaitGroup
	writing.Go(t.write)
	err := t.read()
	t.link.Close()
	writing.Wait()
	if t.run.Err() != nil {
		return nil //nolint:nilerr // Close has closed the device
	}
	return err
}

// batch returns buffers for what the device takes or gives at a time.
func (t *Tunnel) batch() (bufs [][]byte, sizes []int) {
	bufs, sizes = make([][]byte, t.device.BatchSize()), make([]int, t.device.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, head+MTU)
	}
	return bufs, sizes
}

func (t *Tunnel) read() error {
	bufs, sizes := t.batch()
	packets := make([][]byte, 0, len(bufs))
	for {
		n, err := t.device.Read(bufs, sizes, head)
		packets = packets[:0]
		for i := range n {
			if sizes[i] > 0 {
				packets = append(packets, bufs[i][:head+sizes[i]])
			}
		}
		if len(packets) > 0 {
			_, _ = t.link.Write(packets, head) // has no errors
		}
		if err != nil && !errors.Is(err, tun.ErrTooManySegments) { // else a burst was cut: programs send it again
			return fmt.Errorf("read network device: %w", err)
		}
	}
}

func (t *Tunnel) write() {
	bufs, sizes := t.batch()
	packets := make([][]byte, 0, len(bufs))
	for {
		n, err := t.link.Read(bufs, sizes, head)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			t.log.Debug("cannot split segment", "err", err)
		}
		packets = packets[:0]
		for i := range n {
			packets = append(packets, bufs[i][:head+sizes[i]])
		}
		if len(packets) == 0 {
			continue
		}
		if _, err := t.device.Write(packets, head); err != nil {
			t.log.Debug("cannot write to network device", "err", err) // it is down, or closed: Run returns why
		}
	}
}

// Close resets all connections, and waits until everything in the tunnel has stopped. It must be called once.
func (t *Tunnel) Close() {
	t.mu.Lock()
	t.closed = true
	var ends []func()
	for f := range t.flows {
		ends = append(ends, f.abort)
	}
	t.mu.Unlock()
	t.cancel()
	for _, end := range ends {
		end()
	}
	if len(ends) > 0 {
		time.Sleep(resetGrace)
	}
	t.link.Close()
	if err := t.device.Close(); err != nil {
		t.log.Debug("cannot close network device", "err", err)
	}
	t.serving.Wait()
	t.stack.Close()
}

// admit reports whether a packet goes to the network stack.
func (t *Tunnel) admit(packet []byte) bool {
	p, ok := ipstack.Parse(packet)
	if !ok || p.Src != t.opts.Machine || !t.opts.Prefix.Contains(p.Dst) || p.Dst == t.opts.Machine {
		return false
	}
	switch p.Kind {
	case ipstack.Flow:
		return true
	case ipstack.EchoRequest:
		t.answer(p)
	}
	return false
}

// answer answers an echo request if the owner wants that.
func (t *Tunnel) answer(p ipstack.Packet) {
	reply := p.EchoReply()
	if p.Dst == t.opts.Addr {
		t.link.Inject(reply)
		return
	}
	f := t.begin(echo)
	if f == nil {
		return
	}
	go func() {
		defer t.end(f)
		if t.opts.Echo(t.run, p.Dst) {
			t.link.Inject(reply)
		}
	}()
}

// begin makes room for another flow, nil if there is none.
func (t *Tunnel) begin(k kind) *flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.counts[k] >= limits[k] {
		return nil
	}
	t.serving.Add(1)
	t.counts[k]++
	f := &flow{kind: k, abort: func() {}}
	t.flows[f] = struct{}{}
	return f
}

// end forgets a flow.
func (t *Tunnel) end(f *flow) {
	t.mu.Lock()
	delete(t.flows, f)
	t.counts[f.kind]--
	t.mu.Unlock()
	t.serving.Done()
}

// own says how to end a flow from now on, and ends it if the tunnel is closed.
func (t *Tunnel) own(f *flow, abort func()) {
	t.mu.Lock()
	closed := t.closed
	f.abort = abort
	t.mu.Unlock()
	if closed {
		abort()
	}
}

func (t *Tunnel) acceptTCP(_, dst netip.AddrPort) func(*ipstack.TCPConn) {
	f := t.begin(tcp)
	if f == nil {
		return nil
	}
	serve := t.opts.AcceptTCP(t.run, dst)
	if serve == nil {
		t.end(f)
		return nil
	}
	return func(c *ipstack.TCPConn) {
		defer t.end(f)
		if c == nil {
			serve(nil)
			return
		}
		t.own(f, c.Abort)
		serve(c)
	}
}

func (t *Tunnel) acceptUDP(src, dst netip.AddrPort) func(*ipstack.UDPConn) {
	f := t.begin(udp)
	if f == nil {
		return nil
	}
	return func(c *ipstack.UDPConn) {
		defer t.end(f)
		t.own(f, func() { c.Close() })
		serve := t.opts.AcceptUDP(t.run, dst)
		if serve == nil {
			c.Close()
			t.link.Inject(ipstack.PortUnreachable(src, dst))
			return
		}
		serve(c)
	}
}
