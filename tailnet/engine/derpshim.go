package engine

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tailscale.com/derp"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// shim acts as magicsock's relays: it is a server on a loopback port of this process. It forwards what magicsock sends
// to the relayLink of the relay, and hands back disco messages. It serves this process only: each relay's host name is
// a secret that only magicsock knows, and the client must prove that it has the node's own key.
//
// It speaks DERP over TLS, as magicsock does with servers, with a certificate that magicsock is configured to expect.
// It listens only while there is a relay to which magicsock has no connection: with one relay, for a few milliseconds.
type shim struct {
	engine   *Engine
	secret   key.NodePrivate // the server's key
	certHash string          // hex SHA-256 of the certificate
	server   *http.Server
	config   *tls.Config
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while not listening
	port     int          // of the current listener or the last one
}

func newShim(e *Engine) (*shim, error) {
	const name = "*.shim.invalid"
	cert, hash, err := selfSigned(name)
	if err != nil {
		return nil, err
	}
	b := &shim{engine: e, secret: key.NewNode(), certHash: hash}
	b.config = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.server = &http.Server{
		Handler:           b,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // other processes on this machine may connect to the port
	}
	return b, nil
}

func (b *shim) close() {
	b.cancel()
	b.mu.Lock()
	b.server.Close()
	b.mu.Unlock()
	b.running.Wait()
}

// listen opens or closes the shim's listener. It reports whether magicsock must be given a new port.
func (b *shim) listen(open bool) (moved bool, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || open == (b.listener != nil) {
		return false, nil
	}
	if !open {
		b.listener.Close()
		b.listener = nil
		return false, nil
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)))
	if err != nil && b.port != 0 { // another process has taken the port
		l, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return false, fmt.Errorf("listen for magicsock: %w", err)
	}
	before := b.port
	b.listener, b.port = l, l.Addr().(*net.TCPAddr).Port
	b.running.Go(func() {
		if err := b.server.Serve(tls.NewListener(l, b.config)); !errors.Is(err, net.ErrClosed) &&
			!errors.Is(err, http.ErrServerClosed) {
			b.engine.logf("relay shim: %v", err)
		}
	})
	return b.port != before, nil
}

// newHost generates the random host name under which magicsock reaches a relay.
func newHost() string { return strings.ToLower(rand.Text()) + ".shim.invalid" }

// node returns magicsock's description of the shim to a relay.
func (b *shim) node(l *relayLink) *tailcfg.DERPNode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &tailcfg.DERPNode{
		Name: strconv.Itoa(l.relay.Region) + "b", RegionID: l.relay.Region, HostName: l.host, IPv4: "127.0.0.1",
		IPv6:     "none",
		DERPPort: b.port, STUNPort: -1, CertName: "sha256-raw:" + b.certHash,
	}
}

func (b *shim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	link := b.engine.linkByHost(host)
	switch {
	case link == nil:
		http.Error(w, "this server serves only its own process", http.StatusForbidden)
		return
	case r.URL.Path != "/derp" || !strings.EqualFold(r.Header.Get("Upgrade"), "derp"):
		http.NotFound(w, r)
		return
	}
	b.running.Add(1) // the server's own goroutine is still counted
	defer b.running.Done()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer near.Close()
	defer context.AfterFunc(b.ctx, func() { near.Close() })()
	if _, err := io.WriteString(near, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: DERP\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return
	}
	c := &shimConn{conn: near, out: bufio.NewWriter(near)}
	if err := b.greet(c, buffered.Reader); err != nil {
		b.engine.logf("relay shim: %v", err)
		return
	}
	link.want(c, true)
	b.engine.openShim(false)
	defer func() {
		link.want(c, false)
		b.engine.openShim(false)
	}()
	alive := time.AfterFunc(derp.KeepAlive, c.keepAlive)
	defer alive.Stop()
	c.alive = alive
	if err := c.serve(buffered.Reader, link); b.ctx.Err() == nil {
		b.engine.logf("relay shim: %v", err)
	}
}

// shimConn is a connection from magicsock.
type shimConn struct {
	conn  net.Conn
	alive *time.Timer

	mu  sync.Mutex
	out *bufio.Writer
}

// greet performs the server's half of DERP's hello: the server sends its key; the client sends its key and its info,
// sealed between the two keys; then the server sends its own sealed info.
func (b *shim) greet(c *shimConn, in *bufio.Reader) error {
	c.conn.SetDeadline(time.Now().Add(relayTimeout))
	defer c.conn.SetDeadline(time.Time{})
	hello := append([]byte(derp.Magic), rawKey(b.secret.Public())...)
	if err := c.write(derp.FrameServerKey, hello); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	n, err := derp.ReadFrameTypeHeader(in, derp.FrameClientInfo)
	if err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	if n < derp.KeyLen || n > 64<<10 {
		return errors.New("client hello has an invalid length")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	if string(body[:derp.KeyLen]) != string(rawKey(b.engine.public)) {
		return errors.New("client key is not this node's key")
	}
	if _, ok := b.secret.OpenFrom(b.engine.public, body[derp.KeyLen:]); !ok {
		return errors.New("client did not prove its key")
	}
	info, err := json.Marshal(derp.ServerInfo{Version: derp.ProtocolVersion})
	if err != nil {
		return err
	}
	if err := c.write(derp.FrameServerInfo, b.secret.SealTo(b.engine.public, info)); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	return nil
}

func rawKey(k key.NodePublic) []byte {
	return k.AppendTo(nil)
}

// write sends a frame that consists of the given parts.
func (c *shimConn) write(kind derp.FrameType, parts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if err := derp.WriteFrameHeader(c.out, kind, uint32(n)); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := c.out.Write(p); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

// deliver hands a peer's disco message to magicsock.
func (c *shimConn) deliver(from key.NodePublic, data []byte) {
	if err := c.write(derp.FrameRecvPacket, rawKey(from), data); err != nil {
		c.conn.Close() // magicsock reconnects
	}
}

// keepAlive is called once a minute: magicsock gives up on a relay that is silent for two.
func (c *shimConn) keepAlive() {
	if err := c.write(derp.FrameKeepAlive); err != nil {
		c.conn.Close()
		return
	}
	c.alive.Reset(derp.KeepAlive)
}

// serve forwards what magicsock sends until it closes the connection.
func (c *shimConn) serve(in *bufio.Reader, link *relayLink) error {
	var buf [derp.KeyLen + shortPacket]byte
	for {
		kind, n, err := derp.ReadFrameHeader(in)
		if err != nil {
			return err
		}
		if kind != derp.FrameSendPacket || n < derp.KeyLen || n > uint32(len(buf)) {
			if _, err := in.Discard(int(n)); err != nil {
				return err
			}
			continue
		}
		if _, err := io.ReadFull(in, buf[:n]); err != nil {
			return err
		}
		if data := buf[derp.KeyLen:n]; len(data) > 1 { // one byte is a probe from bind
			var peer Key
			copy(peer[:], buf[:derp.KeyLen])
			link.send(keyOf(peer), data)
		}
	}
}

// selfSigned creates a certificate for host that is used as long as the process lives.
func selfSigned(host string) (_ tls.Certificate, hash string, _ error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("make key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("make certificate: %w", err)
	}
	sum := sha256.Sum256(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: secret}, hex.EncodeToString(sum[:]), nil
}
