package notifications

import (
	"html"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTitle bounds a title, in bytes. maxValue bounds a label's value.
const (
	maxTitle = 250
	maxValue = 4000
)

// Link is an action of a rendered message.
type Link struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// Rendered is the text of one message. Title and Text are plain, and Title is one line.
type Rendered struct {
	Title, TitleMarkdown string
	Text, Markdown, HTML string // the body; HTML is a fragment
	Links                []Link
}

// render fills a template with labels. Values are escaped for each format, so that they cannot add markup.
func render(t Template, labels map[string]string, accessURL *url.URL) Rendered {
	value := func(escape func(string) string) func(string) string {
		return func(name string) string { return escape(bounded(labels[name])) }
	}
	out := Rendered{Title: shorten(expand(t.Title, value(oneLine)), maxTitle)}
	out.TitleMarkdown = markdown(out.Title)
	var text, mark, markup []string
	for paragraph := range strings.SplitSeq(t.Body, "\n\n") {
		var p, m, h strings.Builder
		for i, piece := range strings.Split(paragraph, "**") {
			plain := expand(piece, value(visible))
			if i%2 == 1 && plain != "" {
				m.WriteString("**" + expand(piece, value(func(v string) string { return markdown(oneLine(v)) })) + "**")
				h.WriteString("<strong>" + expand(piece, value(htmlText)) + "</strong>")
			} else {
				m.WriteString(expand(piece, value(markdown)))
				h.WriteString(expand(piece, value(htmlText)))
			}
			p.WriteString(plain)
		}
		if strings.TrimSpace(p.String()) == "" { // the label is empty
			continue
		}
		text, mark, markup = append(text, p.String()), append(mark, m.String()), append(markup, "<p>"+h.String()+"</p>")
	}
	out.Text, out.Markdown, out.HTML = strings.Join(text, "\n\n"), strings.Join(mark, "\n\n"), strings.Join(markup,
		"\n")
	for _, a := range t.Actions {
		path := expand(a.Path, value(url.PathEscape))
		out.Links = append(out.Links, Link{Label: a.Label, URL: strings.TrimSuffix(accessURL.String(), "/") + path})
	}
	return out
}

// expand replaces the names in double braces. It does not look at the values again.
func expand(pattern string, value func(name string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(pattern, "{{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, "}}")
		b.WriteString(value(name))
		pattern = after
	}
}

func bounded(text string) string { return shorten(strings.ToValidUTF8(text, "\ufffd"), maxValue) }

// shorten cuts text at a boundary of characters.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// visible removes control characters other than line breaks.
func visible(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return ' '
		}
		return r
	}, text)
}

// oneLine also removes line breaks.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, visible(text)))
}

// htmlText escapes text for HTML and keeps its line breaks.
func htmlText(text string) string {
	return strings.ReplaceAll(html.EscapeString(visible(text)), "\n", "<br>\n")
}

// markdown escapes text for Markdown (CommonMark), in which every punctuation character can be escaped. Line breaks
// stay, and what would begin a block after one does not.
func markdown(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(visible(text), "\n") {
		if i > 0 {
			b.WriteString("\\\n") // a hard line break
		}
		for j, r := range strings.TrimLeft(line, " \t") {
			switch {
			case strings.ContainsRune("\\`*_{}[]()<>#!|~&:", r), j == 0 && strings.ContainsRune("+-=", r), strings.ContainsRune(".)", r) && j > 0 && digits(strings.TrimLeft(line, " \t")[:j]):
				b.WriteByte('\\')
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// digits reports whether text is a number: at the beginning of a line, it would begin a list.
func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
