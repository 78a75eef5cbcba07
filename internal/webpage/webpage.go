// Package webpage writes the pages that people see instead of the app or the dashboard that they asked for. It knows no
// feature.
package webpage

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Page is what a person sees instead of what the address promised, such as an app.
type Page struct {
	Status         int
	Title, Text    string // the title has no full stop
	Link, LinkText string
}

const pageText = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
:root { color-scheme: light dark; background: Canvas }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1.5rem; overflow-wrap: anywhere }
h1 { font-size: 1.25rem }
</style>
<h1>%s</h1>
<p>%s</p>
<p><a href="%s">%s</a></p>
</html>
`

// pagePolicy lets this server's own page show itself and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// Write answers people with a page, and programs with JSON.
func Write(w http.ResponseWriter, r *http.Request, p Page) error {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(p.Status)
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(sdk.Response{Message: p.Title + ".", Detail: p.Text})
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	title := html.EscapeString(p.Title)
	_, err := fmt.Fprintf(w, pageText, title, title, html.EscapeString(p.Text), html.EscapeString(p.Link),
		html.EscapeString(p.LinkText))
	return err
}
