package ipstack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailscale/wireguard-go/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"
)

const (
	// MTU is the size of packets that cross networks: the minimum that IPv6 allows.
	MTU = header.IPv6MinimumMTU
	// linkQueue is how many packets, or segments of up to 64 KiB, may wait for Read. A connection that finds it full
	// waits.
	linkQueue = 512
	// maxGSO is the longest segment that the stack leaves to the link to split, in bytes.
	maxGSO = 1<<16 - 1
)

// Batched reports whether packets are split and joined here and travel in batches. On other systems, sockets are read
// and written one packet per system call, and a batch would only take up more receive buffers.
func Batched() bool { return runtime.GOOS == "linux" }

// Bypass carries packets that are on the link and not the stack's.
type Bypass interface {
	// Protocol is the IPv6 next header of its packets.
	Protocol() uint8
	// Receive takes the packets of a batch, IPv6 headers included. It must not keep them.
	Receive(packets [][]byte)
	// Ready has a value while Fill has packets.
	Ready() <-chan struct{}
	// Fill writes packets into bufs, from offset on, and returns how many. It sets their sizes.
	Fill(bufs [][]byte, sizes []int, offset int) int
}

// Link is a link to a network stack, and has the methods of a TUN device to WireGuard. Make one with NewLink. One
// goroutine may call Read, and any number Write.
type Link struct {
	// Admit decides which packets to accept, if it is not nil. Set it before packets pass.
	Admit func(packet []byte) bool

	bypass Bypass // nil: there is none
	mtu    uint32
	active atomic.Int64 // when packets last passed, in Unix nanoseconds

	out     chan *stack.PacketBuffer
	pending *stack.PacketBuffer // taken from the queue, but did not fit: Read's
	done    chan struct{}
	once    sync.Once

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher // nil before the stack attaches, and after it detaches
}

// NewLink returns a link without a stack, for packets of up to mtu bytes. bypass may be nil.
func NewLink(bypass Bypass, mtu int) *Link {
	return &Link{bypass: bypass, mtu: uint32(mtu), out: make(chan *stack.PacketBuffer, linkQueue), done: make(chan struct{})}
}

var _ stack.GSOEndpoint = (*Link)(nil)

func (l *Link) MTU() uint32                             { return l.mtu }
func (l *Link) SetMTU(uint32)                           {}
func (l *Link) MaxHeaderLength() uint16                 { return 0 }
func (l *Link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *Link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *Link) Wait()                                   {}
func (l *Link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *Link) AddHeader(*stack.PacketBuffer)           {}
func (l *Link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *Link) SetOnCloseAction(func())                 {}
func (l *Link) GSOMaxSize() uint32                      { return maxGSO }
func (l *Link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

func (l *Link) SupportedGSO() stack.SupportedGSO {
	if Batched() {
		return stack.HostGSOSupported
	}
	return stack.GSONotSupported
}

func (l *Link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

func (l *Link) IsAttached() bool { return l.attached() != nil }

func (l *Link) attached() stack.NetworkDispatcher {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher
}

// Close stops the link from accepting or delivering packets.
func (l *Link) Close() { l.once.Do(func() { close(l.done) }) }

// WritePackets queues what the stack sends. It blocks while the queue is full.
func (l *Link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for i, p := range packets.AsSlice() {
		if !l.queue(p.IncRef()) {
			p.DecRef()
			if i == 0 {
				return 0, &tcpip.ErrClosedForSend{}
			}
			return i, nil
		}
	}
	return packets.Len(), nil
}

// queue leaves a packet and its reference to Read, unless the link is closed.
func (l *Link) queue(p *stack.PacketBuffer) bool {
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case l.out <- p:
		return true
	case <-l.done:
		return false
	}
}

// Idle returns the time since the last packet passed.
func (l *Link) Idle() time.Duration { return time.Since(time.Unix(0, l.active.Load())) }

// Inject leaves Read a packet that the stack did not create. It drops the packet if the queue is full. It keeps the
// slice.
func (l *Link) Inject(packet []byte) {
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	select {
	case l.out <- p:
	default:
		p.DecRef()
	}
}

// Queue is Inject, but waits while the queue is full.
func (l *Link) Queue(packet []byte) {
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	if !l.queue(p) {
		p.DecRef()
	}
}

// joiners are GRO instances that join the segments of a TCP connection within a batch of packets.
var joiners = sync.Pool{New: func() any {
	j := new(gro.GRO)
	j.Init(true)
	return j
}}

// aside are lists of packets for a bypass.
var aside = sync.Pool{New: func() any { return new([][]byte) }}

// Write passes packets from the other end to the stack. They are authenticated, so their checksums are not verified.
func (l *Link) Write(bufs [][]byte, offset int) (int, error) {
	dispatcher := l.attached()
	if dispatcher == nil {
		return len(bufs), nil
	}
	l.active.Store(time.Now().UnixNano())
	var (
		join  *gro.GRO
		other *[][]byte
	)
	for _, b := range bufs {
		packet := b[offset:]
		if l.Admit != nil && !l.Admit(packet) {
			continue
		}
		if l.bypass != nil && header.IPv6(packet).NextHeader() == l.bypass.Protocol() {
			if other == nil {
				other = aside.Get().(*[][]byte)
			}
			*other = append(*other, packet)
			continue
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		p.NetworkProtocolNumber = header.IPv6ProtocolNumber
		p.RXChecksumValidated = true
		if header.IPv6(packet).NextHeader() == uint8(header.TCPProtocolNumber) && Batched() {
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
	if other != nil {
		l.bypass.Receive(*other)
		clear(*other)
		*other = (*other)[:0]
		aside.Put(other)
	}
	if join != nil {
		join.Flush()
		join.Dispatcher = nil
		joiners.Put(join)
	}
	return len(bufs), nil
}

// Read blocks until the stack or the bypass has a packet, and takes as many more as are queued and fit. It returns
// os.ErrClosed after Close.
func (l *Link) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	var ready <-chan struct{}
	if l.bypass != nil {
		ready = l.bypass.Ready()
	}
	count := 0
	for count < len(bufs) {
		p := l.pending
		l.pending = nil
		switch {
		case p != nil:
		case count == 0:
			select {
			case p = <-l.out:
				l.active.Store(time.Now().UnixNano())
			case <-ready:
				if count = l.bypass.Fill(bufs, sizes, offset); count > 0 {
					l.active.Store(time.Now().UnixNano())
				}
				continue
			case <-l.done:
				return 0, os.ErrClosed
			}
		default:
			select {
			case p = <-l.out:
			default:
				return count, nil
			}
		}
		if count > 0 && segments(p) > len(bufs)-count {
			l.pending = p
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

// split copies a packet from the stack into buffers, split into packets that fit the tunnel and with their checksums
// filled in.
func split(p *stack.PacketBuffer, bufs [][]byte, sizes []int, offset int) (int, error) {
	whole := bufs[0][offset:]
	n := 0
	for _, part := range p.AsSlices() {
		n += copy(whole[n:], part)
	}
	whole = whole[:n]
	gso := p.GSOOptions
	opts := tun.GSOOptions{
		CsumStart: gso.L3HdrLen, CsumOffset: gso.CsumOffset, GSOSize: gso.MSS, NeedsCsum: gso.NeedsCsum,
	}
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
