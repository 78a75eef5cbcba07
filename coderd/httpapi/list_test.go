package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/coderd/httpapi"
)

func TestWriteList(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		pages [][]string
		fails bool // after them
		want  []string
	}{
		"no items":                 {nil, false, []string{}},
		"one page":                 {[][]string{{"a"}}, false, []string{"a"}},
		"several pages":            {[][]string{{"a", "b"}, {"<c>"}, {"d"}}, false, []string{"a", "b", "<c>", "d"}},
		"an error at the start":    {nil, true, nil},
		"an error after two pages": {[][]string{{"a"}, {"b"}}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				i := 0
				err := httpapi.WriteList(w, func() ([]string, error) {
					if i++; i <= len(tt.pages) {
						return tt.pages[i-1], nil
					}
					if tt.fails {
						return nil, broken
					}
					return nil, nil
				})
				if err != nil {
					http.Error(w, err.Error(), http.StatusTeapot)
				}
			}))
			defer server.Close()
			resp, err := http.Get(server.URL)
			if err != nil {
				if len(tt.pages) == 0 || !tt.fails {
					t.Fatal(err)
				}
				return // the connection was broken before the answer's head was sent
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if tt.fails {
				if err == nil && resp.StatusCode != http.StatusTeapot {
					t.Errorf("answered %s %q, want an error or a broken answer", resp.Status, body)
				}
				return
			}
			var got []string
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}
