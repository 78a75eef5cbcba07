package websock

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/webdial"
)

// DialOptions configure the client's side. The zero value is usable.
type DialOptions struct {
	Header       http.Header   // sent with the upgrade request
	ReadLimit    int64         // bytes per message; 0 means DefaultReadLimit
	PingInterval time.Duration // 0 means DefaultPingInterval, negative means no pings
	Subprotocol  string        // empty means none; else the server must agree to it

	// HTTPClient makes the request. Nil means one of the connection's own, with TLS below and the proxy of the
	// environment.
	HTTPClient *http.Client
	// TLS is used if HTTPClient is nil. Nil means the system's trust.
	TLS *tls.Config
}

// Dial connects to a URL with scheme http, https, ws or wss. It blocks until the server has answered, or ctx ends.
//
// If the server refuses the upgrade the error is a fault with the code of the HTTP status and the message of the body
// ({"message","detail"}). If the server cannot be reached the fault's code is fault.Unavailable.
func Dial(ctx context.Context, u *url.URL, opts DialOptions) (*Conn, error) {
	client := opts.HTTPClient
	if client == nil {
		client = &http.Client{Transport: webdial.Cautious(webdial.Upgrader(opts.TLS)), CheckRedirect: refuseRedirect}
	}
	c := new(Conn)
	do := &websocket.DialOptions{
		HTTPClient:      client,
		HTTPHeader:      opts.Header.Clone(),
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  c.pinged, OnPongReceived: c.ponged,
	}
	if opts.Subprotocol != "" {
		do.Subprotocols = []string{opts.Subprotocol}
	}
	ws, resp, err := websocket.Dial(ctx, u.String(), do)
	if err != nil {
		return nil, refusal(u, resp, err)
	}
	if ws.Subprotocol() != opts.Subprotocol {
		ws.Close(websocket.StatusPolicyViolation, "subprotocol "+opts.Subprotocol+" expected")
		return nil, fault.New(fault.Unavailable, "the server at %s does not speak %q", u.Host, opts.Subprotocol)
	}
	c.open(ws, opts.ReadLimit, orDefault(opts.PingInterval), 0)
	return c, nil
}

// refuseRedirect refuses redirects, because the headers carry a credential for the named server only.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = time.Minute

// retryAfter returns for how long a refusal asks to wait, 0 if it does not say so in seconds.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// refusal turns a failed dial into a fault.
func refusal(u *url.URL, resp *http.Response, err error) error {
	if resp == nil {
		return fault.New(fault.Unavailable, "reach the server at %s: %w", u.Host, err)
	}
	refused := fault.New(fault.Unavailable, "the server at %s refused the connection (%s): %w", u.Host, resp.Status,
		err)
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		return refused.WithDetail("it points to %s: use that as the server's URL", to)
	}
	var body struct {
		Message, Detail, Reason string
		Unchanged               bool
	}
	if resp.Body != nil {
		data, readErr := io.ReadAll(io.LimitReader(resp.Body, 1024))
		resp.Body.Close()
		if readErr == nil && json.Unmarshal(data, &body) == nil && body.Message != "" {
			refused.Code, refused.Message, refused.Detail = fault.FromHTTPStatus(resp.StatusCode), body.Message, body.Detail
			refused.Reason, refused.Unchanged = body.Reason, body.Unchanged
			refused.RetryAfter = retryAfter(resp.Header)
			return refused
		}
	}
	// The answer is not our server's, but perhaps that of a proxy in front of it, whose codes mean less.
	switch code := fault.FromHTTPStatus(resp.StatusCode); code {
	case fault.Unauthenticated, fault.Forbidden, fault.NotFound, fault.RateLimited:
		refused.Code = code
	}
	return refused
}
