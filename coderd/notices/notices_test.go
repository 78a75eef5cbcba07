package notices

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

func TestLicenses(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("of others")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files  fstest.MapFS
		status int
		text   string
	}{
		"built":             {fstest.MapFS{"dist/NOTICES.txt.gz": {Data: packed.Bytes()}}, http.StatusOK, "of others"},
		"without the build": {fstest.MapFS{}, http.StatusNotFound, "make build"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := httpapi.NewMux(httpapi.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			notices{c.files}.routes(mux)
			got := httptest.NewRecorder()
			mux.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/licenses", nil))
			if got.Code != c.status || !bytes.Contains(got.Body.Bytes(), []byte(c.text)) {
				t.Errorf("got %d %q", got.Code, got.Body)
			}
		})
	}
}
