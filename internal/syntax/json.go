package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// measureJSON checks a JSON text before it is parsed, and the templates in its strings, which are parsed when they are
// used.
func (p *Parser) measureJSON(name string, text []byte) hcl.Diagnostics {
	if diags := p.size(name, text); diags.HasErrors() {
		return diags
	}
	line, counted := 1, 0
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	at := func() hcl.Range {
		offset := min(int(d.InputOffset()), len(text))
		line += bytes.Count(text[counted:offset], []byte("\n"))
		counted = offset
		pos := hcl.Pos{Line: line, Column: 1, Byte: offset}
		return hcl.Range{Filename: name, Start: pos, End: pos}
	}
	for open := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && open == 0 {
			return nil
		}
		if err != nil {
			where := at()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				where.Start.Line, err = 1+bytes.Count(text, []byte("\n")), errors.New("the text ends too early")
			}
			return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Invalid JSON",
				Detail: strings.TrimPrefix(err.Error(), "json: ") + ".", Subject: &where}}
		}
		if p.tokens++; p.tokens > maxTokens {
			return tooMuch(at(), "the template has more than %d words and signs", maxTokens)
		}
		switch token := token.(type) {
		case json.Delim:
			if open--; token == '{' || token == '[' {
				open += 2
			}
			if open > MaxDepth {
				return tooMuch(at(), "expressions are nested more than %d levels deep", MaxDepth)
			}
		case json.Number:
			if hugeNumber(token.String()) {
				return tooMuch(at(), "the number has an exponent above %d", maxExponent)
			}
		case string:
			if strings.Contains(token, "${") || strings.Contains(token, "%{") {
				if diags := p.count(name, []byte(token), template, at().Start); diags.HasErrors() {
					return diags
				}
			}
		}
	}
}
