package main

import (
	"net/url"
	"strings"
	"testing"
)

func TestGreeting(t *testing.T) {
	t.Parallel()
	at := &url.URL{Scheme: "http", Host: "127.0.0.1:3000"}
	for name, c := range map[string]struct {
		greeting
		terminal   bool
		want, lack []string
	}{
		"a log": {
			greeting{url: at, setupCode: "abc123", warnings: []string{"the kernel has no Landlock"}}, false,
			[]string{"The server answers on http://127.0.0.1:3000. In another terminal, run: coder login http://127.0.0.1:3000\n"}, []string{"abc123", "Landlock"},
		},
		"a first run": {
			greeting{
				url: at, setupCode: "abc123", warnings: []string{"the kernel has no Landlock"},
				outdated: "Terraform 1.11.4 is old: install another",
			}, true,
			[]string{
				" answers on http://127.0.0.1:3000\n", "run in another terminal: coder login http://127.0.0.1:3000\n", "this setup code: abc123\n",
				"Warning: the kernel has no Landlock. What to do: http://127.0.0.1:3000/docs/provisioners\n",
				"Warning: Terraform 1.11.4 is old: install another.\n", "--verbose",
			}, nil,
		},
		"a later one": {greeting{url: at}, true, []string{"answers on"}, []string{"setup code", "Warning"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			if err := c.write(&text, c.terminal); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("it lacks %q:\n%s", want, &text)
				}
			}
			for _, lack := range c.lack {
				if strings.Contains(text.String(), lack) {
					t.Errorf("it has %q:\n%s", lack, &text)
				}
			}
		})
	}
}
