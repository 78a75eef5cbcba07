package apps_test

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestVisitsAreRecorded checks that all requests of a visitor to an app are one row of the connection log, which ends with the server.
func TestVisitsAreRecorded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stored := make(chan struct{})
	w := newWorld(t)
	go func() { defer close(stored); w.Connections.Run(ctx) }()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusTeapot)
		rw.Write([]byte("hello"))
	})
	ann := w.browser("ann")
	for range 3 {
		ann.open(host("code") + "/")
	}
	ann.open(host(strconv.Itoa(w.port)) + "/")
	w.browser("").open(host("all") + "/")
	w.Stop()
	cancel()
	<-stored
	got, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:completed"})
	if err != nil || len(got.ConnectionLogs) != 3 {
		t.Fatalf("rows: %+v, %v", got, err)
	}
	for _, row := range got.ConnectionLogs {
		if row.WebInfo == nil || row.WebInfo.StatusCode != http.StatusTeapot || row.IP != "127.0.0.1" || row.BytesOut%5 != 0 || row.BytesOut == 0 || row.Path != "proxied" {
			t.Errorf("row: %+v", row)
			continue
		}
		switch row.SlugOrPort {
		case "code":
			if row.Type != "workspace_app" || row.WebInfo.User == nil || row.WebInfo.User.Username != "ann" || row.BytesOut != 15 {
				t.Errorf("app: %+v", row)
			}
		case "all":
			if row.WebInfo.User != nil || row.Username != "" {
				t.Errorf("visitor who is not signed in: %+v", row)
			}
		case strconv.Itoa(w.port):
			if row.Type != "port_forwarding" {
				t.Errorf("port: %+v", row)
			}
		default:
			t.Errorf("row: %+v", row)
		}
	}
}

// TestClientBehindProxy checks that the address that a trusted reverse proxy names is the one that the audit log, the connection log, the server's
// log and the app itself see, and that a client does not choose another one.
func TestClientBehindProxy(t *testing.T) {
	t.Parallel()
	const client = "203.0.113.9"
	ctx, cancel := context.WithCancel(t.Context())
	stored := make(chan struct{})
	w := newWorld(t, func(o *coderd.Options) { o.Proxies.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	go func() { defer close(stored); w.Connections.Run(ctx) }()
	ann := w.browser("ann")
	ann.open(host("code") + "/")
	forwarded := http.Header{"X-Forwarded-For": {"198.51.100.7", client}, "X-Real-Ip": {"198.51.100.8"}}
	if status, body, _ := ann.send("GET", host("all")+"/", forwarded.Clone()); status != http.StatusOK {
		t.Fatalf("app: %d %s", status, body)
	}
	if got := w.got().Header; got.Get("X-Forwarded-For") != client || got.Get("X-Real-Ip") != "" {
		t.Errorf("the app saw %v", got)
	}
	header := forwarded.Clone()
	header.Set("Coder-Session-Token", w.Token("ann"))
	if status, body, _ := ann.send("POST", dashboard+"/api/v2/users/ann/keys", header); status != http.StatusCreated {
		t.Fatalf("make a token: %d %s", status, body)
	}
	w.Stop()
	cancel()
	<-stored
	visits, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "status:completed"})
	if err != nil || !slices.ContainsFunc(visits.ConnectionLogs, func(c sdk.ConnectionLog) bool { return c.SlugOrPort == "all" && c.IP == client }) {
		t.Errorf("visits: %+v, %v", visits, err)
	}
	changes, err := w.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: "resource_type:api_key"})
	if err != nil || !slices.ContainsFunc(changes.AuditLogs, func(a sdk.AuditLog) bool { return a.IP == client }) {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	if !strings.Contains(w.Logged(), "addr="+client) || strings.Contains(w.Logged(), "198.51.100") {
		t.Error("the log has another address")
	}
}
