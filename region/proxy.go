package region

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hosts"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

const (
	// grace is how long keys of an earlier connection stay admitted after a new one has sent its keys.
	grace = 30 * time.Second
	// orphaned is how long keys stay admitted without a connection.
	orphaned = 5 * time.Minute

	helloTimeout  = 15 * time.Second
	complainEvery = time.Minute
	pingInterval  = time.Second
)

// Options configures Run. Server, Token, URL and Listener are required.
type Options struct {
	Logger *slog.Logger // nil disables logging
	// Server is the servers' URL, Token the proxy's.
	Server *url.URL
	Token  secret.Token
	// TLS is for the connection to the servers. Nil means the system's authorities.
	TLS *tls.Config
	// URL is where nodes and servers reach Listener.
	URL *url.URL
	// Listener serves the relay, over HTTP or HTTPS. Run closes it.
	Listener net.Listener
	// TrustedHosts are further names of the proxy, which hosts.Parse has checked.
	TrustedHosts []string
	// Certified reports whether the proxy holds a certificate for a name. Nil: for none.
	Certified func(name string) bool
	// Proxies are the reverse proxies that may name the visitor's address.
	Proxies clientaddr.Proxies
	// STUNAddress is the UDP address that answers STUN. Empty means none.
	STUNAddress string
	// Apps makes the proxy serve apps and terminals, and WildcardHost is the pattern of their hosts: see
	// appproxy.Options.
	Apps         bool
	WildcardHost string
	// SSH serves stock SSH clients. Nil: there is no SSH gateway. SSHAccess is the host and port at which users reach
	// it. Run closes it.
	SSH       net.Listener
	SSHAccess string
	// WireGuard serves devices with a WireGuard app. Nil: there is no WireGuard gateway.
	WireGuard *WireGuard
	// Metrics is where the proxy's metrics are registered. Nil means nowhere.
	Metrics prometheus.Registerer
	// RenewEvery is how often the servers are asked whether what visitors have open may go on. 0 means 15 seconds.
	RenewEvery time.Duration
	// Synced is called whenever the relay knows all keys of a new connection. Nil means it is not.
	Synced func()
}

// proxy is a running proxy.
type proxy struct {
	opts  Options
	log   *slog.Logger
	relay *relay.Server
	apps  *apps // nil if it relays only
	hello Hello

	mu    sync.Mutex                   // held while the relay admits and revokes, which does not block
	keys  map[tailnet.PublicKey]uint64 // the admitted keys, with the connection that last named them
	epoch uint64                       // number of the current connection
	timer *time.Timer                  // revokes keys; nil before the first connection

	connected bool   // the current connection has sent all keys
	synced    uint64 // connections that have sent all keys
}

// Run serves the relay until ctx ends, or the servers refuse the token. It connects again whenever the connection is
// lost, and serves admitted nodes meanwhile.
func Run(ctx context.Context, opts Options) (err error) {
	p := &proxy{opts: opts, log: opts.Logger, keys: map[tailnet.PublicKey]uint64{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	defer opts.Listener.Close()
	if opts.SSH != nil {
		defer opts.SSH.Close()
	}
	if p.relay, err = relay.New(relay.Options{Logger: opts.Logger}); err != nil {
		return err
	}
	defer p.relay.Close()
	p.hello = Hello{
		URL: opts.URL.String(), Version: buildinfo.Version(), Check: secret.Text(CheckLength), Apps: opts.Apps,
		WildcardHost: opts.WildcardHost, SSHAddress: opts.SSHAccess,
	}
	if opts.WireGuard != nil {
		p.hello.WireGuardAddress = opts.WireGuard.Access
	}
	if opts.STUNAddress != "" {
		if p.hello.STUNPort, err = p.relay.ListenSTUN(opts.STUNAddress); err != nil {
			return fault.New(fault.Unavailable, "The STUN address %s cannot be used: %w", opts.STUNAddress, err)
		}
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(p); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mux := p.routes()
	var handler http.Handler = mux
	if opts.Apps || opts.SSH != nil || opts.WireGuard != nil {
		p.apps = newApps(ctx, opts, p.log)
		defer func() {
			cancel(nil)
			err = errors.Join(err, p.apps.close())
		}()
	}
	if opts.Apps {
		mux.HandleFunc("GET "+LatencyPath, AnswerLatency)
		mux.HandleFunc("GET "+TerminalPath, p.apps.serveTerminal)
		front := appproxy.New(appproxy.Options{Logger: p.log, Judge: p.apps, URL: opts.URL, Dashboard: opts.Server,
			WildcardHost: opts.WildcardHost})
		handler = front.Wrap(mux)
		defer func() {
			cancel(nil)
			front.Close()
		}()
	}
	handler = hosts.New(hosts.Options{
		URLs: []*url.URL{opts.URL}, Wildcard: opts.WildcardHost, Trusted: opts.TrustedHosts, Certified: opts.Certified,
		Setting: "--trusted-hosts", Logger: p.log,
	}).Handler(handler)
	server := &http.Server{Handler: opts.Proxies.Handler(handler), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(opts.Listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve the relay: %w", err))
		}
	})
	if opts.SSH != nil {
		serving.Go(func() {
			if err := p.apps.serveSSH(ctx, opts.SSH); err != nil {
				cancel(err)
			}
		})
	}
	if opts.WireGuard != nil {
		serving.Go(func() {
			if err := p.apps.serveWireGuard(ctx, *opts.WireGuard); err != nil {
				cancel(err)
			}
		})
	}
	defer func() {
		cancel(nil) // ends the gateways
		server.Close()
		p.relay.Close() // ends what was hijacked
		serving.Wait()
		p.stopTimer()
	}()
	return p.stayConnected(ctx)
}

func (p *proxy) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /derp", p.relay.Handler())
	mux.Handle("GET /derp/", p.relay.Handler())
	mux.HandleFunc("GET "+CheckPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		if _, err := io.WriteString(w, p.hello.Check); err != nil {
			p.log.Debug("answer a check", "err", err)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return mux
}

// stayConnected keeps a connection to the servers until ctx ends or they refuse the token.
func (p *proxy) stayConnected(ctx context.Context) error {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	var complained time.Time
	for {
		synced, err := p.connect(ctx)
		if ctx.Err() != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
		switch fault.CodeOf(err) {
		case fault.Unauthenticated, fault.Forbidden:
			return err
		}
		if synced {
			retry.Reset()
		}
		if time.Since(complained) >= complainEvery {
			p.log.Warn("not connected to the servers, trying again", "url", p.opts.Server.Redacted(), "err", err)
			complained = time.Now()
		}
		if retry.Wait(ctx) != nil {
			continue
		}
	}
}

// connect serves one connection. It reports whether the server has sent all keys.
func (p *proxy) connect(ctx context.Context) (synced bool, _ error) {
	dialing, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := websock.Dial(dialing, p.opts.Server.JoinPath(sdk.ProxyPath), websock.DialOptions{
		Header: http.Header{sdk.ProxyTokenHeader: {p.opts.Token.Reveal()}}, ReadLimit: MaxUpdate,
		PingInterval: pingInterval, TLS: p.opts.TLS,
	})
	if err != nil {
		return false, err
	}
	defer conn.Close(websock.StatusNormal, "")
	if err := conn.WriteJSON(dialing, p.hello); err != nil {
		return false, fmt.Errorf("introduce this proxy: %w", err)
	}
	p.begin()
	defer p.revokeAfter(orphaned, true)
	defer p.markConnected(false)
	for {
		data, err := conn.Read(ctx)
		if err != nil {
			return synced, err
		}
		u, err := DecodeUpdate(data)
		if err != nil {
			return synced, err
		}
		p.apply(u)
		if u.Recheck && p.apps != nil {
			p.apps.recheck(u.Owners)
		}
		if u.Synced {
			synced = true
			p.revokeAfter(grace, false)
			p.markConnected(true)
			p.log.Info("connected to the servers", "url", p.opts.Server.Redacted())
			if p.apps != nil {
				p.apps.recheck(nil) // what the last connection was to tell may be lost
				p.apps.join()       // so that the first visitor does not wait for it
			}
			if p.opts.Synced != nil {
				p.opts.Synced()
			}
		}
	}
}

// begin counts a new connection.
func (p *proxy) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch++
	if p.timer != nil {
		p.timer.Stop()
	}
}

// markConnected records whether the current connection has sent all keys.
func (p *proxy) markConnected(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connected = yes; yes {
		p.synced++
	}
}

// apply admits and revokes keys.
func (p *proxy) apply(u Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range u.Admit {
		p.keys[k] = p.epoch
		p.relay.Admit(k)
	}
	for _, k := range u.Revoke {
		delete(p.keys, k)
		p.relay.Revoke(k)
	}
}

// revokeAfter revokes, after a delay without a new connection, all keys, or those that the current connection has not
// named.
func (p *proxy) revokeAfter(delay time.Duration, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	epoch := p.epoch
	p.timer = time.AfterFunc(delay, func() { p.revokeOld(epoch, all) })
}

func (p *proxy) revokeOld(epoch uint64, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, named := range p.keys {
		if p.epoch == epoch && (all || named < epoch) {
			delete(p.keys, k)
			p.relay.Revoke(k)
		}
	}
}

func (p *proxy) stopTimer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}
