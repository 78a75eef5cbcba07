package host

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestWorkerEndIsLogged checks that the log reports how and why a provider worker ended while it was needed. The end of a worker that the
// daemon ends is not logged.
func TestWorkerEndIsLogged(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo serving; echo 'serve provider: no more'; exit 3": "exit status 3: serve provider: no more",
		"echo serving; kill -9 $$":                             "signal: killed",
		"echo serving; exec sleep 600":                         "",
	} {
		var log bytes.Buffer
		w, err := startWorker([]string{"sh", "-c", script}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := <-w.lines; !ok {
			t.Errorf("%s: no first line", script)
		}
		if want != "" {
			select {
			case <-w.done:
			case <-time.After(time.Minute):
				t.Fatalf("%s: it does not end", script)
			}
		}
		w.close()
		if want == "" && log.Len() > 0 || !strings.Contains(log.String(), want) {
			t.Errorf("%s: log %q, want %q", script, log.String(), want)
		}
	}
}
