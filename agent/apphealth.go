package agent

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/internal/appaddr"
)

const (
	minHealthInterval = time.Second
	maxHealthApps     = 128
	maxHealthBody     = 64 << 10 // bytes read of an answer
)

// checkHealth runs the apps' health checks at their intervals, and reports changes, until ctx ends. Each new manifest
// restarts it.
func checkHealth(ctx context.Context, reports *reports, apps []*agentpb.App) {
	check := newHealthChecker()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, app := range apps[:min(len(apps), maxHealthApps)] {
		wg.Go(func() { checkApp(ctx, reports, check, app) })
	}
}

func checkApp(ctx context.Context, reports *reports, check healthChecker, app *agentpb.App) {
	interval := max(time.Duration(app.GetIntervalSeconds())*time.Second, minHealthInterval)
	threshold := max(app.GetThreshold(), 1)
	reported := agentpb.Health_HEALTH_UNSPECIFIED
	report1 := func(h agentpb.Health) {
		if h != reported {
			reported = h
			reports.add(report{health: &agentpb.AppHealthRequest{Apps: []*agentpb.AppState{{Id: bytes.Clone(app.GetId()), Health: h}}}})
		}
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for failures := int32(0); ; {
		if check.ask(ctx, app.GetUrl(), interval) {
			failures = 0
			report1(agentpb.Health_HEALTH_HEALTHY)
		} else if failures++; failures >= threshold && ctx.Err() == nil {
			failures = threshold
			report1(agentpb.Health_HEALTH_UNHEALTHY)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// healthChecker asks apps as the proxies do that open them.
type healthChecker struct {
	local   *http.Client // for the workspace's own ports
	distant *http.Client // for other hosts, whose certificates are verified
}

func newHealthChecker() healthChecker {
	local := appaddr.Transport(func(ctx context.Context, _ string, port uint16) (net.Conn, error) {
		return forward.DialLocal(ctx, port)
	})
	client := func(t *http.Transport) *http.Client {
		t.DisableKeepAlives = true
		// A redirect is an answer: the app is up.
		return &http.Client{Transport: t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return healthChecker{local: client(local), distant: client(&http.Transport{})}
}

// ask reports whether the app answers with any status but a server error (5xx).
func (c healthChecker) ask(ctx context.Context, url string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	client := c.distant
	if appaddr.IsLoopback(req.URL.Hostname()) {
		client = c.local
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHealthBody)) // the status is enough
	return resp.StatusCode < http.StatusInternalServerError
}
