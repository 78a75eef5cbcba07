package engine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"github.com/tailscale/wireguard-go/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

const (
	// mtu is the size of packets in the tunnel: the minimum that IPv6 allows.
	mtu = header.IPv6MinimumMTU
	// nicQueue is how many packets, or segments of up to 64 KiB, may wait for WireGuard. A connection that finds it full
	// waits.
	nicQueue = 512
	// maxGSO is the longest segment that the stack leaves to the nic to split, in bytes.
	maxGSO = 1<<16 - 1
)

// batched reports whether packets are split and joined here and travel in batches. On other systems magicsock reads and
// writes one packet per system call, and a batch would only take up more receive buffers.
func batched() bool { return runtime.GOOS == "linux" }

// nic connects the network stack and WireGuard: it is a link to the stack, and its tunDevice is a TUN device to WireGuard.
type nic struct {
	admit  func(packet []byte) bool // decides which packets from peers to accept
	mux    *stream.Mux              // its packets do not go through the stack
	active atomic.Int64             // when packets last passed, in Unix nanoseconds

	out    chan *stack.PacketBuffer
	going  *gauge // packets that WireGuard has read and not sent yet
	coming *gauge // packets that WireGuard has received and not written yet
	events chan tun.Event
	done   chan struct{}
	once   sync.Once

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // nil before the stack attaches, and after it detaches
}

func newNIC(admit func(packet []byte) bool) *nic {
	return &nic{admit: admit, out: make(chan *stack.PacketBuffer, nicQueue), events: make(chan tun.Event, 1), done: make(chan struct{}), going: newGauge(), coming: newGauge()}
}

var _ stack.GSOEndpoint = (*nic)(nil)

func (n *nic) MTU() uint32                                  { return mtu }
func (n *nic) SetMTU(uint32)                                {}
func (n *nic) MaxHeaderLength() uint16                      { return 0 }
func (n *nic) LinkAddress() tcpip.LinkAddress               { return "" }
func (n *nic) SetLinkAddress(tcpip.LinkAddress)             {}
func (n *nic) Wait()                                        {}
func (n *nic) ARPHardwareType() header.ARPHardwareType      { return header.ARPHardwareNone }
func (n *nic) AddHeader(*stack.PacketBuffer)                {}
func (n *nic) ParseHeader(*stack.PacketBuffer) bool         { return true }
func (n *nic) SetOnCloseAction(func())                      {}
func (n *nic) GSOMaxSize() uint32                           { return maxGSO }
func (n *nic) Capabilities() stack.LinkEndpointCapabilities { return stack.CapabilityRXChecksumOffload }

func (n *nic) SupportedGSO() stack.SupportedGSO {
	if batched() {
		return stack.HostGSOSupported
	}
	return stack.GSONotSupported
}

func (n *nic) Attach(d stack.NetworkDispatcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dispatcher = d
}

func (n *nic) IsAttached() bool { return n.attached() != nil }

func (n *nic) attached() stack.NetworkDispatcher {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.dispatcher
}

// Close stops the nic from accepting or delivering packets.
func (n *nic) Close() { n.once.Do(func() { close(n.done) }) }

// WritePackets queues what the stack sends. It blocks while the queue is full.
func (n *nic) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for i, p := range packets.AsSlice() {
		if !n.queue(p.IncRef()) {
			p.DecRef()
			if i == 0 {
				return 0, &tcpip.ErrClosedForSend{}
			}
			return i, nil
		}
	}
	return packets.Len(), nil
}

// queue passes a packet and its reference to WireGuard, unless the nic is closed.
func (n *nic) queue(p *stack.PacketBuffer) bool {
	select {
	case <-n.done:
		return false
	default:
	}
	select {
	case n.out <- p:
		return true
	case <-n.done:
		return false
	}
}

// idle returns the time since the last packet passed.
func (n *nic) idle() time.Duration { return time.Since(time.Unix(0, n.active.Load())) }

// inject passes WireGuard a packet that the stack did not create. It drops the packet if the queue is full.
func (n *nic) inject(packet []byte) {
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	select {
	case n.out <- p:
	default:
		p.DecRef()
	}
}

// joiners are GRO instances that join the segments of a TCP connection within a batch of packets.
var joiners = sync.Pool{New: func() any {
	j := new(gro.GRO)
	j.Init(true)
	return j
}}

// deliver passes packets from peers to the stack. WireGuard has authenticated them, so their checksums are not verified.
func (n *nic) deliver(bufs [][]byte, offset int) {
	dispatcher := n.attached()
	if dispatcher == nil {
		return
	}
	n.active.Store(time.Now().UnixNano())
	var (
		join    *gro.GRO
		streams inbound
	)
	for _, b := range bufs {
		packet := b[offset:]
		if !n.admit(packet) {
			continue
		}
		if header.IPv6(packet).NextHeader() == streamProtocol {
			streams.add(n.mux, packet)
			continue
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		p.NetworkProtocolNumber = header.IPv6ProtocolNumber
		p.RXChecksumValidated = true
		if header.IPv6(packet).NextHeader() == uint8(header.TCPProtocolNumber) && batched() {
			if join == nil {
				join = joiners.Get().(*gro.GRO)
				join.Dispatcher = dispatcher
			}
			join.Enqueue(p)
		} else {
			dispatcher.DeliverNetworkPacket(p.NetworkProtocolNumber, p)
		}
		p.DecRef()
	}
	streams.flush(n.mux)
	if join != nil {
		join.Flush()
		join.Dispatcher = nil
		joiners.Put(join)
	}
}

// tunDevice is the nic as WireGuard sees it. One goroutine reads from it, and one per peer writes to it.
type tunDevice struct {
	*nic
	pending *stack.PacketBuffer // taken from the queue, but did not fit
}

var _ tun.Device = (*tunDevice)(nil)

func (t *tunDevice) File() *os.File           { return nil }
func (t *tunDevice) MTU() (int, error)        { return mtu, nil }
func (t *tunDevice) Name() (string, error)    { return "mesh", nil }
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

func (t *tunDevice) BatchSize() int {
	if batched() {
		return conn.IdealBatchSize
	}
	return 1
}

func (t *tunDevice) Close() error {
	t.nic.Close()
	close(t.events) // the device calls Close once
	return nil
}

func (t *tunDevice) Write(bufs [][]byte, offset int) (int, error) {
	t.deliver(bufs, offset)
	t.coming.leave(len(bufs))
	return len(bufs), nil
}

// Read blocks until the stack or a stream has a packet, and takes as many more as are queued and fit.
func (t *tunDevice) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	t.going.wait(t.done)
	count, err := t.read(bufs, sizes, offset)
	t.going.enter(count)
	return count, err
}

func (t *tunDevice) read(bufs [][]byte, sizes []int, offset int) (int, error) {
	count := 0
	for count < len(bufs) {
		p := t.pending
		t.pending = nil
		switch {
		case p != nil:
		case count == 0:
			select {
			case p = <-t.out:
				t.active.Store(time.Now().UnixNano())
			case <-t.mux.Ready():
				if count = t.mux.Fill(bufs, sizes, offset); count > 0 {
					t.active.Store(time.Now().UnixNano())
				}
				continue
			case <-t.done:
				return 0, os.ErrClosed
			}
		default:
			select {
			case p = <-t.out:
			default:
				return count, nil
			}
		}
		if count > 0 && segments(p) > len(bufs)-count {
			t.pending = p
			return count, nil
		}
		made, err := split(p, bufs[count:], sizes[count:], offset)
		p.DecRef()
		if err != nil {
			return count, fmt.Errorf("split segment: %w", err)
		}
		count += made
	}
	return count, nil
}

// segments returns the maximum number of packets that a segment is split into.
func segments(p *stack.PacketBuffer) int {
	if p.GSOOptions.Type == stack.GSONone || p.GSOOptions.MSS == 0 {
		return 1
	}
	return p.Size()/int(p.GSOOptions.MSS) + 1
}

// split copies a packet from the stack into buffers, split into packets that fit the tunnel and with their checksums filled
// in.
func split(p *stack.PacketBuffer, bufs [][]byte, sizes []int, offset int) (int, error) {
	whole := bufs[0][offset:]
	n := 0
	for _, part := range p.AsSlices() {
		n += copy(whole[n:], part)
	}
	whole = whole[:n]
	gso := p.GSOOptions
	opts := tun.GSOOptions{CsumStart: gso.L3HdrLen, CsumOffset: gso.CsumOffset, GSOSize: gso.MSS, NeedsCsum: gso.NeedsCsum}
	switch gso.Type {
	case stack.GSONone:
		opts.GSOType = tun.GSONone
	case stack.GSOTCPv6:
		if n < int(gso.L3HdrLen)+header.TCPMinimumSize {
			return 0, errors.New("segment is too short for TCP")
		}
		opts.GSOType = tun.GSOTCPv6
		opts.HdrLen = gso.L3HdrLen + uint16(header.TCP(whole[gso.L3HdrLen:]).DataOffset())
	default:
		return 0, fmt.Errorf("unknown GSO type %d", gso.Type)
	}
	if opts.GSOType == tun.GSONone && !opts.NeedsCsum {
		sizes[0] = n
		return 1, nil
	}
	return tun.GSOSplit(whole, opts, bufs, sizes, offset)
}
