package health

import (
	"context"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

const (
	echoPath    = "/api/v2/debug/ws"
	echoHeader  = "Coder-Health-Check"
	echoPurpose = "health check"
	echoText    = "Is anybody there?"
)

// websocket opens a websocket to the access URL, as agents and browsers do.
func (s *Service) websocket(ctx context.Context) sdk.HealthSection {
	section := good("websocket", "WebSockets", "WebSockets work.", sdk.Map[any]{})
	refused := func(err error) sdk.HealthSection {
		return bad(section, sdk.HealthError, CodeWebsocketRefused, "A websocket to the access URL fails: "+cause(err)+".",
			"A proxy in front of the server must pass the Upgrade and Connection headers and keep such connections open.")
	}
	token, err := s.opts.Signer.Sign(echoPurpose, echoText, time.Minute)
	if err != nil {
		return refused(err)
	}
	start := time.Now()
	conn, err := websock.Dial(ctx, s.opts.AccessURL.JoinPath(echoPath), websock.DialOptions{
		Header: http.Header{echoHeader: {token.Reveal()}}, HTTPClient: s.opts.Client,
	})
	if err != nil {
		return refused(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, []byte(echoText)); err != nil {
		return refused(err)
	}
	if _, err := conn.Read(ctx); err != nil {
		return refused(err)
	}
	section.Details["latency_ms"] = millis(time.Since(start))
	return section
}

// echo sends one message back to a client with a token of this deployment. For other clients the route does not exist.
func (s *Service) echo(w http.ResponseWriter, r *http.Request) error {
	var text string
	if err := s.opts.Signer.Verify(echoPurpose, secret.Token(r.Header.Get(echoHeader)), &text); err != nil {
		return rbac.NotFound(rbac.Deployment)
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: 1 << 10})
	if err != nil {
		return nil // already answered
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	data, err := conn.Read(ctx)
	if err == nil {
		err = conn.Write(ctx, data)
	}
	if err != nil {
		s.opts.Logger.Debug("health check's websocket ended", "err", err)
		return nil
	}
	return conn.Close(websock.StatusNormal, "")
}
