package tailnet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/websock"
	"tailscale.com/tailcfg"
)

// bridge is a relay as the engine sees it, on a loopback port of this process, whose bytes travel to the real one in a
// websocket. It serves this process alone: its host name is a secret that only the engine is told, and every request has
// to name it.
type bridge struct {
	target   *url.URL // the real relay's websocket
	client   *http.Client
	host     string // the secret
	certHash string // hex SHA-256 of the certificate, "" without TLS
	listener net.Listener
	server   *http.Server
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// newBridge starts a bridge to the relay at u. overTLS is whether the engine talks TLS to relays.
func newBridge(u *url.URL, overTLS bool, roots *x509.CertPool) (*bridge, error) {
	b := &bridge{
		target: websocketURL(u),
		client: &http.Client{Transport: relayTransport(u.Hostname(), roots, true)},
		host:   strings.ToLower(rand.Text()) + ".bridge.invalid",
	}
	var err error
	if b.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	serve := b.listener
	if overTLS {
		cert, hash, err := selfSigned(b.host)
		if err != nil {
			b.listener.Close()
			return nil, err
		}
		b.certHash = hash
		serve = tls.NewListener(b.listener, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.server = &http.Server{
		Handler:           b,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // strangers' requests are nobody's concern
	}
	b.running.Go(func() { b.server.Serve(serve) })
	return b, nil
}

// engineNode is the bridge in the engine's words.
func (b *bridge) engineNode(region int) *tailcfg.DERPNode {
	node := &tailcfg.DERPNode{
		Name: strconv.Itoa(region) + "b", RegionID: region, HostName: b.host, IPv4: "127.0.0.1", IPv6: "none",
		DERPPort: b.listener.Addr().(*net.TCPAddr).Port, STUNPort: -1,
	}
	if b.certHash != "" {
		node.CertName = "sha256-raw:" + b.certHash
	}
	return node
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if subtle.ConstantTimeCompare([]byte(host), []byte(b.host)) != 1 {
		http.Error(w, "not for you", http.StatusForbidden)
		return
	}
	if r.URL.Path != "/derp" || !strings.EqualFold(r.Header.Get("Upgrade"), "derp") {
		http.NotFound(w, r)
		return
	}
	b.running.Add(1) // safe: the server's own goroutine is still counted
	defer b.running.Done()
	life, end := context.WithCancel(b.ctx)
	defer end()
	dialing, cancel := context.WithTimeout(life, 2*probeTimeout)
	ws, err := dialWebsocket(dialing, b.target, b.client)
	cancel()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer ws.CloseNow() // the end of life closes it only while a read or write is under way
	far := ws.NetConn(life)
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: DERP\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		near.Close()
		return
	}
	stop := context.AfterFunc(life, func() { near.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		defer end()
		io.Copy(near, far)
	})
	io.Copy(far, buffered)
	end()
	back.Wait()
	near.Close()
}

func (b *bridge) close() {
	b.cancel()
	b.server.Close()
	b.running.Wait()
	b.client.CloseIdleConnections()
}

func websocketURL(u *url.URL) *url.URL {
	ws := u.JoinPath("derp")
	ws.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	ws.RawQuery, ws.Fragment = "", ""
	return ws
}

// relayTransport speaks HTTP/1.1 only, since HTTP/2 has no upgrades, and trusts the system's authorities and roots.
func relayTransport(host string, roots *x509.CertPool, proxied bool) *http.Transport {
	t := &http.Transport{
		TLSClientConfig:       trust(host, roots),
		TLSHandshakeTimeout:   probeTimeout,
		ResponseHeaderTimeout: probeTimeout,
		DisableKeepAlives:     true,
	}
	if proxied {
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// trust accepts a certificate for host that the system's authorities or those in extra vouch for. A pool cannot be asked to
// be both.
func trust(host string, extra *x509.CertPool) *tls.Config {
	if extra == nil {
		return &tls.Config{ServerName: host}
	}
	return &tls.Config{
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it instead
		VerifyConnection: func(state tls.ConnectionState) error {
			opts := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
			for _, cert := range state.PeerCertificates[1:] {
				opts.Intermediates.AddCert(cert)
			}
			if _, err := state.PeerCertificates[0].Verify(opts); err == nil {
				return nil
			}
			opts.Roots = extra
			_, err := state.PeerCertificates[0].Verify(opts)
			return err
		},
	}
}

// dialWebsocket connects to a relay. ctx bounds the dial.
func dialWebsocket(ctx context.Context, target *url.URL, client *http.Client) (*websock.Conn, error) {
	return websock.Dial(ctx, target, websock.DialOptions{HTTPClient: client, Subprotocol: "derp", PingInterval: -1})
}

// probeNative tries the upgrade that the engine uses, by the way the engine takes. It returns nil if that passes.
func probeNative(ctx context.Context, u *url.URL, roots *x509.CertPool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("derp").String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Upgrade", "DERP")
	req.Header.Set("Connection", "Upgrade")
	resp, err := relayTransport(u.Hostname(), roots, false).RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade answered with %s", resp.Status)
	}
	return nil
}

func probeWebsocket(ctx context.Context, u *url.URL, roots *x509.CertPool) error {
	client := &http.Client{Transport: relayTransport(u.Hostname(), roots, true)}
	c, err := dialWebsocket(ctx, websocketURL(u), client)
	if err != nil {
		return err
	}
	return c.CloseNow()
}

// selfSigned makes a certificate for host, which lives as long as the process.
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
