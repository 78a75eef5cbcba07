package sdk

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/webdial"
)

// SessionHeader carries the session token of a request.
const SessionHeader = "Coder-Session-Token"

// VersionHeader carries the version of the server's program, on every reply.
const VersionHeader = "X-Coder-Build-Version"

const (
	callTimeout     = 60 * time.Second // one JSON request and its answer
	transferTimeout = 15 * time.Minute // one file
	maxBody         = 32 << 20         // bytes of a JSON answer
)

// Options are the optional parts of a Client. The zero value is useful.
type Options struct {
	Header http.Header  // added to every request
	TLS    *tls.Config  // nil: the system's roots, no client certificate
	Logger *slog.Logger // nil: silent. One debug line per request.
	// Waiting is called when requests begin to wait for the server's database, with the server's words for why, and
	// when the server is slow to answer; again only after a request has succeeded. It must be safe for concurrent use.
	// Nil: requests do not wait for the database, but fail at once.
	Waiting func(Wait)
}

// Client calls one server's API. It is safe for concurrent use. Its errors are *fault.Error, or the context's error
// once that has ended.
type Client struct {
	base    *url.URL
	token   secret.Token
	header  http.Header
	tls     *tls.Config
	http    *http.Client
	log     *slog.Logger
	version atomic.Pointer[string]
	waiting *waiting
	keys    *atomic.Bool // the server has said that it recognizes keys of requests
}

// New returns a client of the server at base, an http or https URL. It does not connect yet. With an empty token,
// requests have no session.
func New(base *url.URL, token secret.Token, opts Options) *Client {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	transport := webdial.Cautious(webdial.Transport(opts.TLS))
	transport.ForceAttemptHTTP2 = true
	transport.MaxIdleConnsPerHost = 4
	transport.IdleConnTimeout = 90 * time.Second
	transport.ResponseHeaderTimeout = callTimeout
	trimmed := *base
	trimmed.Path = strings.TrimRight(trimmed.Path, "/")
	trimmed.RawQuery, trimmed.Fragment = "", ""
	c := &Client{base: &trimmed, token: token, header: opts.Header, tls: opts.TLS, http: &http.Client{
		Transport: transport, CheckRedirect: stay,
	}, log: opts.Logger, keys: new(atomic.Bool)}
	if opts.Waiting != nil {
		c.waiting = &waiting{report: opts.Waiting}
	}
	return c
}

// redirected is a redirect to another server.
type redirected struct{ to string }

func (r redirected) Error() string { return "it redirects to " + r.to }

// stay refuses redirects to other servers: requests carry a credential for the named one. A server may redirect to
// another of its pages, and from HTTP to HTTPS.
func stay(r *http.Request, via []*http.Request) error {
	from, to := via[0].URL, r.URL
	if to.Scheme == from.Scheme && to.Host == from.Host || to.Scheme == "https" && from.Scheme == "http" &&
		to.Hostname() == from.Hostname() {
		if len(via) < 10 {
			return nil
		}
	}
	return redirected{to.String()}
}

// WithToken returns a client of the same server with another session. Both share their connections.
func (c *Client) WithToken(token secret.Token) *Client {
	return &Client{
		base: c.base, token: token, header: c.header, tls: c.tls, http: c.http, log: c.log, waiting: c.waiting,
		keys: c.keys,
	}
}

// AtOnce returns a client of the same server and session whose requests do not wait for the server's database: for what
// runs beside a session, and for callers that show what they wait for.
func (c *Client) AtOnce() *Client {
	other := c.WithToken(c.token)
	other.version.Store(c.version.Load())
	other.waiting = nil
	return other
}

// URL returns the server's base URL without a trailing slash.
func (c *Client) URL() *url.URL { u := *c.base; return &u }

// Token returns the session token of requests.
func (c *Client) Token() secret.Token { return c.token }

// HTTP returns the HTTP client of requests, for other uses with the same server. It adds no headers.
func (c *Client) HTTP() *http.Client { return c.http }

// TLS returns the configuration of requests, or nil for the system's.
func (c *Client) TLS() *tls.Config { return c.tls }

// Header returns a copy of the headers of every request, including the session.
func (c *Client) Header() http.Header {
	h := c.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if c.token != "" {
		h.Set(SessionHeader, c.token.Reveal())
	}
	h.Set("User-Agent", "coder/"+buildinfo.Version())
	return h
}

// ServerVersion returns the version in the server's last reply, or "" before the first.
func (c *Client) ServerVersion() string {
	if v := c.version.Load(); v != nil {
		return *v
	}
	return ""
}

// get requests path and decodes the answer.
func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return send[T](ctx, c, http.MethodGet, path, nil)
}

// send sends body as JSON, unless it is nil, and decodes the answer.
func send[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, method, path, body, &out)
	return out, err
}

// create is send for a POST that creates something. The request has a key, by which the server recognizes that it is
// repeated.
func create[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var out T
	err := c.call(ctx, request{
		method: http.MethodPost, path: path, contentType: jsonType, key: rand.Text(),
	}, body, &out)
	return out, err
}

const jsonType = "application/json"

// request is one request below /api/v2.
type request struct {
	method, path, contentType, key string
	harmless                       bool // it may be repeated, although it is not a GET
}

// do sends one JSON request below /api/v2. A nil into ignores the answer's body.
func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	return c.call(ctx, request{method: method, path: path, contentType: jsonType}, body, into)
}

// call is do for any request.
func (c *Client) call(ctx context.Context, req request, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, DatabasePatience+callTimeout) // the transport bounds the wait for each answer
	defer cancel()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	resp, err := c.roundTrip(ctx, req, reader)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		// The connection can be reused only after the body was read to the end.
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(into); err != nil {
		if ctx.Err() != nil {
			return c.unreachable(ctx, err)
		}
		return fault.New(fault.Internal, "the server at %s gave an answer that is not this API's", c.base).
			WithDetail("%s %s: %v; is there a proxy or another program at this URL?", req.method, req.path, err)
	}
	return nil
}

// roundTrip sends a request and turns every answer of 400 and above into a fault. It repeats requests that may be
// repeated, see attempts. The caller closes the body.
func (c *Client) roundTrip(ctx context.Context, req request, body io.Reader) (*http.Response, error) {
	rewind := rewinder(body)
	if rewind == nil {
		return c.once(ctx, req, body)
	}
	// Without the server's word that it recognizes keys there is none: net/http, too, repeats a request that has one.
	if !c.keys.Load() {
		req.key = ""
	}
	all := attempts{keyed: req.key != "", waiting: c.waiting}
	all.harmless = req.harmless || req.method == http.MethodGet || req.method == http.MethodHead
	all.upload = body != nil && req.contentType != jsonType
	all.try = func() (*http.Response, error) {
		if err := rewind(); err != nil {
			return nil, fmt.Errorf("read the request again: %w", err)
		}
		return c.once(ctx, req, body)
	}
	return all.run(ctx)
}

func (c *Client) once(ctx context.Context, r request, body io.Reader) (*http.Response, error) {
	target := c.base.String() + "/api/v2/" + r.path
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the server URL %q cannot be used", c.base.String()).WithDetail("%v", err)
	}
	req.Header = c.Header()
	if body != nil {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.key != "" {
		req.Header.Set(KeyHeader, r.key)
	}
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	c.log.Debug("api call", "method", r.method, "path", r.path, "status", resp.StatusCode, "duration",
		time.Since(start))
	if v := resp.Header.Get(VersionHeader); v != "" {
		c.version.Store(&v)
		c.keys.Store(resp.Header.Get(KeysHeader) != "")
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, c.refused(resp)
	}
	return resp, nil
}

// refused returns the fault for an answer with status 400 or above.
func (c *Client) refused(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return c.unreachable(resp.Request.Context(), err)
	}
	return DecodeError(resp.StatusCode, data, c.base.String())
}

// DecodeError returns the fault for an answer with the given status and body. If the body is not this API's, the
// message names server.
func DecodeError(status int, body []byte, server string) *fault.Error {
	f := &fault.Error{Code: fault.FromHTTPStatus(status)}
	var r Response
	if json.Unmarshal(body, &r) == nil && r.Message != "" {
		f.Message, f.Detail, f.Reason, f.Unchanged = r.Message, r.Detail, r.Reason, r.Unchanged
		for _, v := range r.Validations {
			f.Fields = append(f.Fields, fault.Field{Field: v.Field, Detail: v.Detail})
		}
		return f
	}
	f.Message = fmt.Sprintf("%s answered %d %s", server, status, http.StatusText(status))
	f.Detail = "the answer is not from codermesh; check the URL and what stands between"
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.Code, f.Cause = fault.Unavailable, errGateway
		f.Detail = "a proxy gave this answer: a server behind it has probably just ended: try again, and check the proxy if this goes on"
	}
	return f
}

// unreachable returns the fault for a request without an answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	return Unreachable(ctx, c.base.String(), err)
}

// Unreachable returns the fault for a request to server that got no answer because of err. If ctx was canceled it
// returns ctx's error.
func Unreachable(ctx context.Context, server string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the method and the URL, which are in the message
	}
	f := &fault.Error{Code: fault.Unavailable, Cause: fmt.Errorf("%w: %w", errUnreachable, err)}
	if elsewhere, ok := errors.AsType[redirected](err); ok {
		f.Message = fmt.Sprintf("%s redirects to %s", server, elsewhere.to)
		f.Detail = "that server would get your session or password; if you trust it, sign in with its URL"
		return f
	}
	if tlsErr, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](tlsErr.Err); ok &&
			invalid.Reason == x509.Expired {
			f.Message = fmt.Sprintf("the certificate of %s is not valid at the time of this machine's clock: %s",
				server, invalid.Detail)
			f.Detail = "set the clock if it is wrong; otherwise ask the server's operator to renew the certificate"
			return f
		}
		f.Message = fmt.Sprintf("the certificate of %s is not trusted: %v", server, tlsErr.Err)
		f.Detail = "name its authority with SSL_CERT_FILE or --client-tls-ca-file"
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		f.Message = fmt.Sprintf("%s did not answer in time", server)
	} else {
		f.Message = fmt.Sprintf("cannot reach %s: %v", server, err)
	}
	f.Detail = "check that the server runs and that the URL and your network are right"
	return f
}

func isNotFound(err error) bool { return fault.CodeOf(err) == fault.NotFound && err != nil }

// seg escapes a name as a path segment.
func seg(name string) string { return url.PathEscape(name) }
