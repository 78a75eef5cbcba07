package output_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

type animal struct {
	Name string `json:"name"`
	Legs string `json:"legs"`
}

func TestList(t *testing.T) {
	t.Parallel()
	animals := []animal{{"spider", "8"}, {"猫", "4"}}
	for _, tt := range []struct {
		name  string
		args  []string
		items []animal
		want  string
		code  fault.Code
	}{
		{"table", nil, animals, "NAME\nspider\n猫\n", ""},
		{"columns", []string{"-c", "legs, Name"}, animals, "LEGS  NAME\n8     spider\n4     猫\n", ""},
		{"no rows", nil, nil, "NAME\n", ""},
		{"json", []string{"-o", "json"}, animals[:1], "[\n  {\n    \"name\": \"spider\",\n    \"legs\": \"8\"\n  }\n]\n", ""},
		{"json without rows", []string{"-o", "json"}, nil, "[]\n", ""},
		{"unknown column", []string{"-c", "wings"}, animals, "", fault.Invalid},
		{"unknown format", []string{"-o", "xml"}, animals, "", fault.Invalid},
	} {
		list := output.List[animal]{Columns: []output.Column[animal]{
			output.Col("name", func(a animal) string { return a.Name }),
			output.Col("legs", func(a animal) string { return a.Legs }),
		}, Initial: []string{"name"}}
		cmd := &cobra.Command{}
		list.Flags(cmd)
		if err := cmd.ParseFlags(tt.args); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := list.Print(&out, tt.items)
		if out.String() != tt.want || (err == nil) != (tt.code == "") || err != nil && fault.CodeOf(err) != tt.code {
			t.Errorf("%s: got %q, %v, want %q, code %q", tt.name, &out, err, tt.want, tt.code)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		at   time.Time
		want string
	}{
		{time.Time{}, "never"}, {now, "now"}, {now.Add(-90 * time.Second), "1m ago"}, {now.Add(-25 * time.Hour), "25h ago"},
		{now.Add(-72*time.Hour - time.Minute), "3d ago"}, {now.Add(2*time.Hour + time.Minute), "in 2h"},
	} {
		if got := output.Ago(tt.at); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.at, got, tt.want)
		}
	}
	if got := output.AgoPtr(nil); got != "never" {
		t.Errorf("nil: got %q", got)
	}
}
