// Package notices serves the licenses of the third parties whose code the programs contain, as these ask for. The build
// writes them into dist/ (tools/notices). It must not know the services.
package notices

import (
	"compress/gzip"
	"embed"
	"errors"
	"io"
	"io/fs"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

//go:embed all:dist
var dist embed.FS

// notices are the files of dist.
type notices struct{ fs.FS }

// Routes registers the page. It is public, as the programs are that a server offers for download.
func Routes(mux *httpapi.Mux) { notices{dist}.routes(mux) }

func (n notices) routes(mux *httpapi.Mux) { mux.Handle("GET /licenses", rbac.Public, n.Serve) }

// Serve returns the licenses of third parties as text.
func (n notices) Serve(w http.ResponseWriter, _ *http.Request) error {
	file, err := n.Open("dist/NOTICES.txt.gz")
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "this server was built without its notices: build it with make build")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, err = io.Copy(w, text)
	return err
}
