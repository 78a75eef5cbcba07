package coderd_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

// step is a request as a client of this API sends it, and what the client reads from the answer.
type step struct {
	method, path, body string // path is below /api/v2/, or begins with a slash
	status             int
	want               string // a JSON value whose members, at any depth, the answer must have; lists are compared whole
	keep               string // keeps the answer's id as {keep} for later steps
	as                 string // "": olga, an owner; "nobody" sends no token
	header             string // "Name: value" that the answer must have
	text               string // what a text answer must contain
}

// replay sends the requests in order. Texts in braces are known names.
func replay(t *testing.T, s *coderdtest.Server, known map[string]string, steps []step) {
	t.Helper()
	fill := func(text string) string {
		for name, id := range known {
			text = strings.ReplaceAll(text, "{"+name+"}", id)
		}
		return text
	}
	for _, st := range steps {
		as := st.as
		if as == "" {
			as = "olga"
		}
		path := fill(st.path)
		if !strings.HasPrefix(path, "/") {
			path = "/api/v2/" + path
		}
		r := httptest.NewRequest(st.method, path, strings.NewReader(fill(st.body)))
		if as != "nobody" {
			r.Header.Set("Coder-Session-Token", s.Token(as))
		}
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if w.Code != st.status {
			t.Errorf("%s: %s %s %s: got %d %s, want %d", as, st.method, path, fill(st.body), w.Code, w.Body, st.status)
			continue
		}
		if name, value, ok := strings.Cut(st.header, ": "); ok && w.Header().Get(name) != fill(value) {
			t.Errorf("%s %s: got the header %s %q, want %q", st.method, path, name, w.Header().Get(name), fill(value))
		}
		if !strings.Contains(w.Body.String(), fill(st.text)) {
			t.Errorf("%s %s: got %s, want it to contain %q", st.method, path, w.Body, fill(st.text))
		}
		if st.status >= http.StatusBadRequest && !strings.HasPrefix(path, "/bin/") { // which answers in plain text
			var problem struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Message == "" {
				t.Errorf("%s %s: no message in %s: %v", st.method, path, w.Body, err)
			}
		}
		var got, want any
		if st.want == "" && st.keep == "" {
			continue
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %s: %v: %s", st.method, path, err, w.Body)
		}
		if st.keep != "" {
			known[st.keep], _ = got.(map[string]any)["id"].(string)
		}
		if st.want == "" {
			continue
		}
		if err := json.Unmarshal([]byte(fill(st.want)), &want); err != nil {
			t.Fatalf("%s: %v", st.want, err)
		}
		if diff := cmp.Diff(want, within(got, want)); diff != "" {
			t.Errorf("%s %s: (-want +got):\n%s", st.method, path, diff)
		}
	}
}

// within returns the part of got whose members want has.
func within(got, want any) any {
	members, isObject := want.(map[string]any)
	whole, is := got.(map[string]any)
	if !isObject || !is {
		return got
	}
	part := map[string]any{}
	for name, value := range members {
		if found, is := whole[name]; is {
			part[name] = within(found, value)
		}
	}
	return part
}
