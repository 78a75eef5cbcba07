package hostname_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/hostname"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"dev.coder": "dev", "dev.coder.": "dev", "dev.ada.coder": "ada/dev", "main.dev.ada.coder": "ada/dev.main", "Dev.CODER": "Dev",
		hostname.Of("ada", "dev", "main"): "ada/dev.main",
		"coder":                           "", ".coder": "", "dev": "", "dev.coder.com": "", "devcoder": "", "": "", ".": "", "a.main.dev.ada.coder": "",
	} {
		if got, ok := hostname.Parse(host); got != want || ok != (want != "") {
			t.Errorf("%q means %q, %v; want %q", host, got, ok, want)
		}
	}
}

// FuzzParse checks that no host makes it fail, and that what it returns has no more parts than a name.
func FuzzParse(f *testing.F) {
	f.Add("main.dev.ada.coder")
	f.Fuzz(func(t *testing.T, host string) {
		if name, ok := hostname.Parse(host); !ok && name != "" {
			t.Errorf("%q is no host, and means %q", host, name)
		}
	})
}
