package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

func TestWriteList(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		pages [][]string
		fails bool // after these pages
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
				return // the connection was broken before the headers were sent
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

func TestPaged(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	for _, c := range []struct {
		limit, offset int32
		all           []string
		want          string
		count, reads  int
	}{
		{2, 0, all, "ab", 3, 1}, {2, 2, all, "c", 3, 1}, {2, 3, all, "", 3, 2}, {2, 1 << 30, all, "", 3, 2},
		{2, 0, nil, "", 0, 1}, {2, 5, nil, "", 0, 2},
	} {
		reads := 0
		rows, count, err := httpapi.Paged(httpapi.Page{Limit: c.limit, Offset: c.offset}, func(p httpapi.Page) ([]string, error) {
			reads++
			from := min(int(p.Offset), len(c.all))
			return c.all[from:min(from+int(p.Limit), len(c.all))], nil
		}, func(string) int64 { return int64(len(c.all)) })
		if got := strings.Join(rows, ""); err != nil || got != c.want || count != c.count || reads != c.reads {
			t.Errorf("%d from %d of %v: %q of %d in %d reads, %v", c.limit, c.offset, c.all, got, count, reads, err)
		}
	}
	broken := errors.New("the database is away")
	if _, _, err := httpapi.Paged(httpapi.Page{Limit: 1}, func(httpapi.Page) ([]string, error) { return nil, broken }, nil); !errors.Is(err, broken) {
		t.Errorf("a failed read: %v", err)
	}
}
