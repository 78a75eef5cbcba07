package appaddr

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// TokenMark stands in the address of an external app for a session token of the user who opens it.
const TokenMark = "$SESSION_TOKEN"

// Escape returns an address with escapes in place of the characters that a URL cannot hold (RFC 3986): desktops pass
// addresses to programs, and some do it in a command line, where a quote or a blank would begin another argument.
func Escape(address string) string {
	var out strings.Builder
	for _, r := range address {
		if unicode.IsSpace(r) || unicode.Is(unicode.C, r) || strings.ContainsRune("\"<>\\^`{|}", r) {
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// NamesOption reports whether the program that opens an address would take its host, its user or its content for an
// option, as ssh does with ssh://-oProxyCommand=….
func NamesOption(address string) bool {
	u, err := url.Parse(Escape(address))
	if err != nil {
		return true
	}
	opaque, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return true
	}
	for _, text := range []string{u.Host, u.User.Username(), opaque} {
		if strings.HasPrefix(text, "-") {
			return true
		}
	}
	return u.Scheme != "" && u.Host == "" && strings.HasPrefix(strings.TrimLeft(u.Path, "/"), "-")
}

// MisleadsToken reports whether a token in place of TokenMark could reach another host than the server's: the token
// must be the value of a parameter, and each parameter that names an address must name the server's, which programs
// sign in to with the token.
func MisleadsToken(address string, server *url.URL) bool {
	if !strings.Contains(address, TokenMark) {
		return false
	}
	at := strings.IndexAny(address, "?#")
	if at < 0 || strings.Contains(address[:at], TokenMark) {
		return true
	}
	u, err := url.Parse(Escape(address[:at]))
	if err != nil || u.Scheme == "coder" && !strings.EqualFold(u.Host, server.Host) {
		return true
	}
	for _, parameter := range strings.FieldsFunc(address[at:], func(r rune) bool { return strings.ContainsRune("?#&;", r) }) {
		key, value, _ := strings.Cut(parameter, "=")
		if strings.Contains(parameter, TokenMark) && value != TokenMark {
			return true
		}
		name, err := url.QueryUnescape(key)
		if err != nil {
			return true
		}
		if strings.Contains(strings.ToLower(name), "url") && !isServer(value, server) {
			return true
		}
	}
	return false
}

// isServer reports whether a parameter's value is an address of the server.
func isServer(value string, server *url.URL) bool {
	text, err := url.QueryUnescape(value)
	if err != nil {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && strings.EqualFold(u.Scheme, server.Scheme) && strings.EqualFold(u.Host, server.Host) &&
		u.User == nil
}
