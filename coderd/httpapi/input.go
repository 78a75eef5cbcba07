package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/codermesh/codermesh/internal/fault"
)

// checkAddress refuses what no name, id or search holds and the database cannot store: NUL, and bytes that are not UTF-8. It is
// the one place for that in paths and queries, as checkText is in bodies.
func checkAddress(u *url.URL) *fault.Error {
	if bad := badText(u.Path); bad != "" {
		return fault.New(fault.Invalid, "The path %s.", bad)
	}
	if !strings.HasPrefix(u.Path, "/api/") {
		return nil // a page: its own program reads the query
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // handlers would see the query without the part
		return fault.New(fault.Invalid, "The query cannot be read.").WithDetail("Percent signs and semicolons in it must be escaped.")
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

// checkText is checkAddress for JSON that is not decoded yet: a NUL hides in it as an escape.
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
		i++ // whatever is escaped: it does not begin an escape itself
	}
	return nil
}

// FromBrowser reports whether a browser sends the request. Browsers name themselves so for decades, and the current ones say what
// made them send; a page can suppress neither. A program that does the same is taken for one.
func FromBrowser(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// checkContentType refuses JSON in the types that a form of another site's page can send without asking. Programs may: curl -d
// names a form's type whatever is sent.
func checkContentType(r *http.Request) error {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		if FromBrowser(r) || r.Header.Get("Cookie") != "" {
			return fault.New(fault.Invalid, "The content type cannot be %q.", kind).WithField("Content-Type", "must be application/json")
		}
	}
	return nil
}

// slashless is the request with its path as routes are written: without a slash at the end. It is answered, not redirected: a
// client would follow with another method, or without its body.
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
