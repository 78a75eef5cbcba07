package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// checkAddress refuses text that no name, id or search contains and that the database cannot store: NUL, and bytes that
// are not UTF-8. It is the only such check for paths and queries, as checkText is for bodies.
func checkAddress(u *url.URL) *fault.Error {
	if bad := badText(u.Path); bad != "" {
		return fault.New(fault.Invalid, "The path %s.", bad)
	}
	if !strings.HasPrefix(u.Path, "/api/") {
		return nil // a page, whose own program reads the query
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // handlers would see the query without the invalid part
		return fault.New(fault.Invalid, "The query cannot be read.").
			WithDetail("Percent signs and semicolons in it must be escaped.")
	}
	for name, values := range query {
		for _, text := range append(values, name) {
			if bad := badText(text); bad != "" {
				return fault.New(fault.Invalid, "The query %s.", bad)
			}
		}
	}
	return nil
}

func badText(text string) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "holds a NUL character"
	case !utf8.ValidString(text):
		return "is not UTF-8"
	}
	return ""
}

// checkText is like checkAddress for JSON that is not decoded yet, in which a NUL hides as an escape.
func checkText(data []byte) *fault.Error {
	if !utf8.Valid(data) {
		return fault.New(fault.Invalid, "The body is not UTF-8.")
	}
	for i := 0; i+1 < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if i+5 < len(data) && string(data[i+1:i+6]) == "u0000" {
			return fault.New(fault.Invalid, "The body contains a NUL character.").WithDetail("At byte %d: \\u0000.", i)
		}
		i++ // the escaped character does not begin an escape itself
	}
	return nil
}

// FromBrowser reports whether a browser sent the request. Browsers have identified themselves like this for decades,
// and current ones also report what caused a request; a page can suppress neither. A program that does the same is
// treated as a browser.
func FromBrowser(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" ||
		strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// checkContentType refuses JSON in the content types that a form on another site's page can send without asking.
// Programs may use them: curl -d declares a form's type whatever it sends.
func checkContentType(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		if FromBrowser(r) || r.Header.Get("Cookie") != "" {
			return fault.New(fault.Invalid, "The content type cannot be %q.", kind).
				WithField("Content-Type", "must be application/json")
		}
	}
	return nil
}

// slashless returns the request with its path as routes are written: without a trailing slash. The request is answered
// rather than redirected: a client would follow a redirect with another method, or without its body.
func slashless(r *http.Request) *http.Request {
	const root = "/api/v2"
	path, raw := r.URL.Path, r.URL.RawPath
	switch {
	case path == root:
		path += "/"
	case path == root+"/" || !strings.HasPrefix(path, root+"/") || !strings.HasSuffix(path, "/") || raw != "" && !strings.HasSuffix(raw, "/"):
		return r
	default:
		path, raw = strings.TrimSuffix(path, "/"), strings.TrimSuffix(raw, "/")
	}
	out, u := *r, *r.URL
	u.Path, u.RawPath = path, raw
	out.URL = &u
	return &out
}

// Hidden reports whether a character shows nothing itself, or changes how its neighbors are shown: in a name, it would
// control the terminals of other users, or mislead them.
func Hidden(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
