package apps_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/codermesh/codermesh/internal/sdk"
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
