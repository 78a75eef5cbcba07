package scim

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of what a provider sends.
const (
	maxOperations = 1000
	maxPath       = 512 // bytes of a path or filter
	maxMembers    = 10000
)

// term is a comparison of a filter: attribute eq "value". The attribute is in lower case, without the URN of its
// schema.
type term struct{ attribute, value string }

// path names what an operation changes: attribute, attribute.sub, or attribute[where].sub. Names are in lower case.
type path struct {
	attribute, sub string
	where          []term
}

// scanner reads filters and paths (RFC 7644, section 3.4.2.2), as far as identity providers use them: comparisons with
// eq, joined by and.
type scanner struct {
	text string
	bad  bool
}

func (s *scanner) space() { s.text = strings.TrimLeft(s.text, " ") }

// eat removes a prefix, whatever its case, and reports whether it was there.
func (s *scanner) eat(prefix string) bool {
	if len(s.text) < len(prefix) || !strings.EqualFold(s.text[:len(prefix)], prefix) {
		return false
	}
	s.text = s.text[len(prefix):]
	return true
}

// word reads a name with the URN of its schema removed: letters, digits, - and _, and dots if they are allowed.
func (s *scanner) word(dots bool) string {
	for _, schema := range []string{schemaUser, schemaGroup, schemaEnterprise} {
		if s.eat(schema + ":") {
			break
		}
	}
	end := strings.IndexFunc(s.text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '$' || dots && r == '.')
	})
	if end < 0 {
		end = len(s.text)
	}
	word := strings.ToLower(s.text[:end])
	s.text = s.text[end:]
	s.bad = s.bad || word == "" || strings.HasPrefix(word, ".") || strings.HasSuffix(word, ".")
	return word
}

// literal reads a JSON string, or true and false.
func (s *scanner) literal() string {
	for _, word := range []string{"true", "false"} {
		if s.eat(word) {
			return word
		}
	}
	if !strings.HasPrefix(s.text, `"`) {
		s.bad = true
		return ""
	}
	for end := 1; end < len(s.text); end++ {
		switch s.text[end] {
		case '\\':
			end++
		case '"':
			var value string
			if err := json.Unmarshal([]byte(s.text[:end+1]), &value); err != nil {
				s.bad = true
			}
			s.text = s.text[end+1:]
			return value
		}
	}
	s.bad = true
	return ""
}

// terms reads comparisons up to the end of the text or a closing bracket.
func (s *scanner) terms(nested bool) []term {
	var out []term
	for !s.bad {
		s.space()
		t := term{attribute: s.word(true)}
		if !nested && s.eat("[") { // emails[type eq "work"].value eq "x"
			s.terms(true)
			if !s.eat("].") {
				s.bad = true
			}
			t.attribute += "." + s.word(false)
		}
		s.space()
		if !s.eat("eq ") {
			s.bad = true
			break
		}
		s.space()
		t.value = s.literal()
		out = append(out, t)
		s.space()
		if !s.eat("and ") {
			break
		}
	}
	return out
}

// parseFilter parses the filter of a list. "" has no terms.
func parseFilter(text string) ([]term, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	s := scanner{text: text}
	terms := s.terms(false)
	s.space()
	if s.bad || s.text != "" || len(text) > maxPath || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, invalid("invalidFilter", `This filter is not supported. Compare attributes with eq, joined by and: userName eq "ann@example.com"`)
	}
	return terms, nil
}

// parsePath parses the path of an operation.
func parsePath(text string) (path, error) {
	s := scanner{text: strings.TrimSpace(text)}
	p := path{attribute: s.word(true)}
	if s.eat("[") {
		p.where = s.terms(true)
		s.bad = !s.eat("]") || s.bad
		if s.eat(".") {
			p.sub = s.word(false)
		}
	} else {
		p.attribute, p.sub, _ = strings.Cut(p.attribute, ".")
	}
	if s.bad || s.text != "" || len(text) > maxPath {
		return path{}, invalid("invalidPath", "The path "+strconv.Quote(text)+" is not supported.")
	}
	return p, nil
}

// operation is one change of a PATCH: add, remove or replace.
type operation struct {
	op    string
	path  path
	value json.RawMessage
}

// parsePatch parses a PATCH (RFC 7644, section 3.5.2). Operations without a path become one for each attribute of their
// value, in no certain order.
func parsePatch(data []byte) ([]operation, error) {
	var body struct {
		Operations []struct {
			Op    string          `json:"op"`
			Path  string          `json:"path"`
			Value json.RawMessage `json:"value"`
		}
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, invalid("invalidSyntax", "The body is not a list of operations.")
	}
	if len(body.Operations) == 0 || len(body.Operations) > maxOperations {
		return nil, invalid("invalidSyntax",
			"A request must have between 1 and "+strconv.Itoa(maxOperations)+" operations.")
	}
	var out []operation
	for _, o := range body.Operations {
		op := strings.ToLower(o.Op)
		if op != "add" && op != "remove" && op != "replace" {
			return nil, invalid("invalidSyntax",
				"The operation "+strconv.Quote(o.Op)+" must be add, remove or replace.")
		}
		if o.Path != "" {
			p, err := parsePath(o.Path)
			if err != nil {
				return nil, err
			}
			out = append(out, operation{op, p, o.Value})
			continue
		}
		values, err := readObject(o.Value)
		if err != nil {
			return nil, err
		}
		if values == nil || op == "remove" {
			return nil, invalid("noTarget", "An operation without a path must add or replace an object's attributes.")
		}
		for name, value := range values {
			if isSchema(name) {
				continue
			}
			p, err := parsePath(name)
			if err != nil {
				return nil, err
			}
			out = append(out, operation{op, p, value})
		}
	}
	return out, nil
}

// readObject decodes an object, nil for anything else. Names of attributes have no case (RFC 7643, section 2.1), so two
// that differ only there are the same one, and of two values for it the sender may have meant either.
func readObject(data []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') || !json.Valid(data) {
		return nil, nil //nolint:nilerr // the caller says what it wanted
	}
	out, seen := map[string]json.RawMessage{}, map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, nil //nolint:nilerr // likewise
		}
		name, _ := token.(string) // a key is one
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil //nolint:nilerr // likewise
		}
		lower := strings.ToLower(name)
		if seen[lower] {
			return nil, invalid("invalidSyntax", "The attribute "+strconv.Quote(name)+" is there twice.")
		}
		seen[lower], out[name] = true, value
	}
	return out, nil
}

// isSchema reports whether a key of an object is not an attribute but the URN of an extension, which the server does
// not keep.
func isSchema(name string) bool {
	return strings.EqualFold(name, schemaEnterprise) || strings.HasPrefix(strings.ToLower(name), "urn:") &&
		!strings.Contains(strings.ToLower(name), ":core:2.0:")
}

// readString decodes a string.
func readString(name string, value json.RawMessage) (*string, error) {
	var out *string
	if err := json.Unmarshal(value, &out); err != nil || out == nil {
		return nil, invalid("invalidValue", name+" must be a string.")
	}
	return out, nil
}

// readBool decodes a boolean. Entra ID sends it as the string "True" or "False".
func readBool(name string, value json.RawMessage) (*bool, error) {
	var out any
	if err := json.Unmarshal(value, &out); err == nil {
		switch v := out.(type) {
		case bool:
			return &v, nil
		case string:
			for _, b := range []bool{true, false} {
				if strings.EqualFold(v, strconv.FormatBool(b)) {
					return &b, nil
				}
			}
		}
	}
	return nil, invalid("invalidValue", name+" must be true or false.")
}

// email is an element of emails.
type email struct {
	Value   string `json:"value"`
	Type    string `json:"type,omitempty"`
	Primary flag   `json:"primary,omitempty"`
}

// flag is a boolean that may be written as a string.
type flag bool

func (f *flag) UnmarshalJSON(data []byte) error {
	b, err := readBool("primary", data)
	if err == nil {
		*f = flag(*b)
	}
	return err
}

// readEmails decodes emails, one of them or an address, and returns the address that counts: the primary one, else that
// of work, else the first.
func readEmails(value json.RawMessage) (*string, error) {
	var list []email
	if json.Unmarshal(value, &list) != nil {
		var one email
		if json.Unmarshal(value, &one) != nil {
			return readString("emails", value)
		}
		list = []email{one}
	}
	if len(list) == 0 || len(list) > maxOperations {
		return nil, invalid("invalidValue", "emails must have an address.")
	}
	best := list[0]
	for _, e := range list {
		if bool(e.Primary) && !bool(best.Primary) || strings.EqualFold(e.Type, "work") &&
			!strings.EqualFold(best.Type, "work") && !bool(best.Primary) {
			best = e
		}
	}
	return &best.Value, nil
}

// readMembers decodes members of a group: a list of objects with a value, one of them, or an id.
func readMembers(value json.RawMessage) ([]string, error) {
	type member struct {
		Value string `json:"value"`
	}
	var list []member
	if json.Unmarshal(value, &list) != nil {
		var one member
		if json.Unmarshal(value, &one) != nil {
			id, err := readString("members", value)
			if err != nil {
				return nil, err
			}
			one.Value = *id
		}
		list = []member{one}
	}
	if len(list) > maxMembers {
		return nil, invalid("tooMany", "A request can name at most "+strconv.Itoa(maxMembers)+" members.")
	}
	out := []string{}
	for _, m := range list {
		out = append(out, m.Value)
	}
	return out, nil
}
