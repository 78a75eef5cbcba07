package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// doctorLine is one row of what "coder doctor" prints.
type doctorLine struct{ Check, Status, Detail, Remedy string }

// doctor runs "coder doctor -o json" against a server, and returns its findings and exit status.
func doctor(t *testing.T, server string, args ...string) (found map[string]doctorLine, status int) {
	t.Helper()
	var out strings.Builder
	status = runMain(t, &out, append([]string{"doctor", "-o", "json", "--global-config", t.TempDir(), "--url", server}, args...)...)
	var list []doctorLine
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	found = make(map[string]doctorLine)
	for _, f := range list {
		found[f.Check] = f
		if f.Status != "pass" && f.Status != "skip" && f.Remedy == "" {
			t.Errorf("%s: %s without a remedy: %s", f.Check, f.Status, f.Detail)
		}
	}
	return found, status
}

func runMain(t *testing.T, out *strings.Builder, args ...string) int {
	t.Helper()
	root := root(global.New(&tty.Streams{In: strings.NewReader(""), Out: out, Err: t.Output()}), nil)
	root.SetArgs(args)
	root.SetContext(t.Context())
	root.SetErr(t.Output())
	if err := root.Execute(); err != nil {
		return 1
	}
	return 0
}

// TestDoctorSaysTheUpgradeMessage: the operator decides what users of another version do, and cannot control their terminals with it.
func TestDoctorSaysTheUpgradeMessage(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{"": "install the server's: ", "Ask the \u202ehelp desk.": "Ask the help desk."} {
		mux := http.NewServeMux()
		mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/api/v2/buildinfo", func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(map[string]string{"version": "v2.99.0", "upgrade_message": message})
		})
		server := httptest.NewServer(mux)
		found, _ := doctor(t, server.URL)
		server.Close()
		if version := found["version"]; version.Status != "warn" || !strings.HasPrefix(strings.ReplaceAll(version.Remedy, "\u202e", ""), want) {
			t.Errorf("%q: %+v", message, version)
		}
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	})
	mux.HandleFunc("/api/v2/buildinfo", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"version": buildinfo.Version()})
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()

	found, status := doctor(t, server.URL)
	if status != 1 || found["connection"].Status != "pass" || found["tls"].Status != "fail" || found["session"].Status != "skip" ||
		!strings.Contains(found["tls"].Remedy, "--client-tls-ca-file") {
		t.Errorf("unknown authority: got status %d, %+v", status, found)
	}

	bare := httptest.NewServer(mux)
	defer bare.Close()
	found, status = doctor(t, bare.URL)
	if status != 1 || found["server"].Status != "pass" || found["clock"].Status != "fail" || found["version"].Status != "pass" ||
		found["session"].Status != "fail" || found["websocket"].Status != "skip" || found["mtu"].Status != "pass" {
		t.Errorf("a clock an hour off, signed out: got status %d, %+v", status, found)
	}

	found, status = doctor(t, fmt.Sprintf("http://127.0.0.1:%d", testport.Free()))
	if status != 1 || found["connection"].Status != "fail" || found["server"].Status != "skip" {
		t.Errorf("a server that is not there: got status %d, %+v", status, found)
	}
	if found, _ = doctor(t, "ftp://nonsense"); found["url"].Status != "fail" || found["connection"].Status != "skip" {
		t.Errorf("no URL at all: %+v", found)
	}
}
