package users

import "strings"

// maxAgent bounds what is stored of a program's name of itself, in bytes.
const maxAgent = 256

// mark is a part of a User-Agent header and what people call that.
type mark struct{ part, name string }

// In both lists the first that is found counts: most browsers claim to be the ones after them, too.
var (
	browsers = []mark{
		{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"}, {"CriOS/", "Chrome"}, {"Chrome/", "Chrome"},
		{"HeadlessChrome/", "Chrome"}, {"Safari/", "Safari"},
	}
	systems = []mark{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"CrOS", "ChromeOS"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"},
		{"Linux", "Linux"},
	}
)

func find(text string, marks []mark) string {
	for _, m := range marks {
		if strings.Contains(text, m.part) {
			return m.name
		}
	}
	return ""
}

// deviceOf describes a program by its User-Agent header, which it may have invented: "Firefox on Linux", "coder command
// line", "curl", or "" if that is not known. The result is short and in printable ASCII.
func deviceOf(agent string) string {
	product, _, _ := strings.Cut(agent, "/")
	switch {
	case product == "coder":
		return "coder command line"
	case product != "Mozilla":
		return plainName(product)
	}
	browser, system := find(agent, browsers), find(agent, systems)
	switch {
	case browser == "":
		return system
	case system == "":
		return browser
	}
	return browser + " on " + system
}

// plainName returns a product's name if it is one (RFC 9110, 10.1.5), else "".
func plainName(product string) string {
	const longest = 40
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r))
	}
	if len(product) > longest || strings.ContainsFunc(product, other) {
		return ""
	}
	return product
}
