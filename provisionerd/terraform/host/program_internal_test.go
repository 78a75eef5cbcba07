package host

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
)

func TestConcern(t *testing.T) {
	t.Parallel()
	for b, old := range map[Program]bool{
		{Product: "terraform", Version: "1.9.0"}: true, {Product: "terraform", Version: "1.11.4"}: true, {Product: "terraform", Version: "1.12.0-rc1"}: false,
		{Product: "terraform", Version: "1.13.3"}: false, {Product: "tofu", Version: "1.9.0"}: false,
	} {
		got := b.Concern()
		if (got != "") != old {
			t.Errorf("%s: got %q", b.Name(), got)
		}
		for _, part := range []string{"all others work", "install Terraform 1.12 or newer", "--terraform ", "restart"} {
			if old && !strings.Contains(got, part) { // what works meanwhile, and the remedy
				t.Errorf("%s: %q lacks %q", b.Name(), got, part)
			}
		}
	}
}

func FuzzProcessRequest(f *testing.F) {
	f.Add([]byte(`{"start":true,"args":["/bin/sh","-c","true"],"env":{"A":"b"}}`))
	f.Add([]byte(`{"start":false}`))
	f.Add([]byte(`{"start":true,"args":[""],"env":{"A=":"\u0000"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ask.Parse(line)
		if err != nil || !r.Start {
			return
		}
		for _, entry := range spaceEnviron(r.Env, map[string]string{"PATH": "/bin"}, "coder", "/home") {
			if name, _, ok := strings.Cut(entry, "="); !ok || name == "" || strings.Contains(entry, "\x00") {
				t.Errorf("environment %q", entry)
			}
		}
		if r.Args[0] == "" || strings.Contains(strings.Join(r.Args, ""), "\x00") {
			t.Errorf("arguments %q", r.Args)
		}
	})
}
