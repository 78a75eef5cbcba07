package slim

import (
	_ "embed"
	"net/http"
	"net/url"
	"path"
	"strings"
)

var (
	//go:embed install.sh
	installSh string
	//go:embed install.ps1
	installPs1 string
)

// scripts returns the install scripts of a server, which download from its URL.
func scripts(accessURL *url.URL) map[string][]byte {
	server := strings.TrimSuffix(accessURL.String(), "/")
	insert := func(script, quote, escaped string) []byte {
		return []byte(strings.Replace(script, "@SERVER@", quote+strings.ReplaceAll(server, quote, escaped)+quote, 1))
	}
	return map[string][]byte{
		"install.sh":  insert(installSh, `'`, `'\''`),
		"install.ps1": insert(installPs1, `'`, `''`),
	}
}

// ServeScript answers GET /install.sh and GET /install.ps1: scripts that install the CLI from this server.
func (b *Binaries) ServeScript(w http.ResponseWriter, r *http.Request) error {
	name := path.Base(r.URL.Path)
	serveText(w, r, name, b.scripts[name])
	return nil
}
