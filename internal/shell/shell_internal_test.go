package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"/srv/a-b_c.d": {"/srv/a-b_c.d", "/srv/a-b_c.d"}, "ann/dev": {"ann/dev", "ann/dev"}, "größe": {"größe", "größe"},
		"https://coder.example.com:8443/": {"https://coder.example.com:8443/", "https://coder.example.com:8443/"},
		"":                                {"''", `""`}, "my templates": {"'my templates'", `"my templates"`}, "a;b": {"'a;b'", `"a;b"`}, "a&b": {"'a&b'", `"a&b"`},
		"it's": {`'it'\''s'`, `"it's"`}, "~/x": {"'~/x'", `"~/x"`}, "*": {"'*'", `"*"`}, "=ls": {"'=ls'", "=ls"}, "@x": {"@x", `"@x"`}, `C:\a`: {`'C:'\\'a'`, `C:\a`}, `C:\a b\`: {`'C:'\\'a b'\\''`, `"C:\a b\\"`},
		"$(reboot)": {"'$(reboot)'", Unprintable}, "%PATH%": {"%PATH%", Unprintable}, "`reboot`": {"'`reboot`'", Unprintable}, `a"b`: {`'a"b'`, Unprintable},
		"a“; reboot; “": {"'a“; reboot; “'", Unprintable}, "a!b": {"'a!b'", Unprintable},
		// Neither quotes nor escapes help against these.
		"-oProxyCommand=reboot": {Unprintable, Unprintable}, "--header-command=reboot": {Unprintable, Unprintable}, "a\nb": {Unprintable, Unprintable}, "a\rb": {Unprintable, Unprintable},
		"a\x1b]0;": {Unprintable, Unprintable}, "a\u009bb": {Unprintable, Unprintable}, "a\u202eb": {Unprintable, Unprintable}, "a\u200bb": {Unprintable, Unprintable}, "a\u00a0b": {Unprintable, Unprintable},
		"a\u2028b": {Unprintable, Unprintable}, "a\u3164b": {Unprintable, Unprintable}, "a\ufe0fb": {Unprintable, Unprintable}, "a\xffb": {Unprintable, Unprintable}, "a\x00b": {Unprintable, Unprintable},
		strings.Repeat("a", 1025): {Unprintable, Unprintable}, strings.Repeat("a", 1024): {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
	} {
		if got := [2]string{POSIX(text), windows(text)}; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzWord passes words through the system's shells: a program gets each text as one argument, or the sign for what cannot be written.
func FuzzWord(f *testing.F) {
	var shells []string
	for _, name := range []string{"sh", "bash", "zsh", "dash", "fish"} {
		if path, err := exec.LookPath(name); err == nil {
			shells = append(shells, path)
		}
	}
	for _, seed := range []string{"dev", "a b", "$(touch x)", "`touch x`", "';touch x;'", "a\nb", "-x", "!x", "~", "*", "=ls", "a\\", "\x1b[31m", "&", "ü", "'", `"`, "#", "{a,b}", "%1", "a=b"} {
		f.Add(seed)
	}
	home := f.TempDir() // fish makes folders in it
	f.Fuzz(func(t *testing.T, text string) {
		word := POSIX(text)
		want := text
		if word == Unprintable {
			want = Unprintable
		}
		dir := t.TempDir()
		for _, path := range shells {
			cmd := exec.CommandContext(t.Context(), path, "-c", "printf '%s|' "+word+" end")
			cmd.Dir = dir
			cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			out, err := cmd.Output()
			if got := string(out); err != nil || got != want+"|end|" {
				t.Errorf("%s: %q is written as %s and read as %q, %v", filepath.Base(path), text, word, got, err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q left %v, %v", text, left, err)
		}
	})
}
