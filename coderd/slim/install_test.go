package slim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// shells run the install script. All three are installed where the tests run: see scripts/test-prerequisites.
var shells = []string{"dash", "bash --posix", "busybox sh"}

// installer is a server with the binaries and scripts, whose answers a test can replace.
type installer struct {
	*httptest.Server
	script string
}

// serve starts a server. instead answers a path before the server itself does, if it returns true.
func serve(t *testing.T, instead func(w http.ResponseWriter, r *http.Request) bool) installer {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if instead == nil || !instead(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	b := open(t, t.TempDir(), server.URL)
	handle := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				t.Errorf("%s: %v", r.URL, err)
			}
		})
	}
	handle("GET /bin/{name}", b.ServeHTTP)
	handle("GET /install.sh", b.ServeScript)
	handle("GET /install.ps1", b.ServeScript)
	resp, err := http.Get(server.URL + "/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return installer{server, read(t, resp)}
}

// run pipes the script into a shell, as users do.
func (i installer) run(t *testing.T, shell string, env []string, args ...string) (string, error) {
	t.Helper()
	words := append(strings.Fields(shell), append([]string{"-s", "--"}, args...)...)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(i.script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func each(t *testing.T, test func(t *testing.T, shell string)) {
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			test(t, shell)
		})
	}
}

func TestInstall(t *testing.T) {
	t.Parallel()
	server := serve(t, nil)
	each(t, func(t *testing.T, shell string) {
		prefix := filepath.Join(t.TempDir(), "new folder")
		out, err := server.run(t, shell, nil, "--prefix", prefix)
		if err != nil {
			t.Fatalf("install: %v\n%s", err, out)
		}
		program := filepath.Join(prefix, "bin", "coder")
		if got, err := exec.CommandContext(t.Context(), program, "hello").Output(); err != nil || string(got) != "pretend hello\n" {
			t.Errorf("the installed program: %q, %v", got, err)
		}
		for _, want := range []string{"Installed pretend version as " + program, `export PATH="` + prefix + `/bin:$PATH"`, "coder login " + server.URL} {
			if !strings.Contains(out, want) {
				t.Errorf("the output lacks %q:\n%s", want, out)
			}
		}
		for shell, file := range map[string]string{"bash": "bash-completion/completions/coder", "zsh": "zsh/site-functions/_coder", "fish": "fish/vendor_completions.d/coder.fish"} {
			if got, err := os.ReadFile(filepath.Join(prefix, "share", file)); err != nil || string(got) != "pretend completion "+shell+"\n" {
				t.Errorf("completion: %q, %v", got, err)
			}
		}
		if left, err := os.ReadDir(filepath.Join(prefix, "bin")); err != nil || len(left) != 1 {
			t.Errorf("left in the folder: %v, %v, want the program alone", left, err)
		}

		// An upgrade replaces the program; with its folder on PATH there is no hint.
		if err := os.WriteFile(program, []byte("old"), 0o755); err != nil {
			t.Fatal(err)
		}
		path := "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
		out, err = server.run(t, shell, []string{path}, "--full", "--no-completion", "--prefix="+prefix)
		if err != nil || strings.Contains(out, "export PATH") || !strings.Contains(out, "Installing coder-full-"+runtime.GOOS) {
			t.Errorf("upgrade: %v\n%s", err, out)
		}
		if got, err := exec.CommandContext(t.Context(), program, "again").Output(); err != nil || string(got) != "pretend again\n" {
			t.Errorf("the upgraded program: %q, %v", got, err)
		}
	})
}

// What is not the server's program is not installed, and what was installed before stays.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	own := "/bin/coder-" + runtime.GOOS + "-" + runtime.GOARCH
	const page = "<!doctype html>\n<title>Sign in to the network</title>\n"
	answer := func(path, body string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == path {
				fmt.Fprint(w, body)
			}
			return r.URL.Path == path
		}
	}
	zeros := strings.Repeat("0", 64)
	for _, test := range []struct {
		name    string
		instead func(w http.ResponseWriter, r *http.Request) bool
		env     []string
		args    []string
		want    string
	}{
		{name: "a page instead of the list", instead: answer("/bin/SHA256SUMS", page), want: "is not a list of checksums"},
		{name: "an empty list", instead: answer("/bin/SHA256SUMS", ""), want: "is not a list of checksums"},
		{name: "a list with a page", instead: answer("/bin/SHA256SUMS", zeros+"  coder-linux-amd64\n"+page), want: "is not a list of checksums"},
		{name: "another platform only", instead: answer("/bin/SHA256SUMS", zeros+"  coder-plan9-mips\n"), want: "only coder-plan9-mips"},
		{name: "a page instead of the program", instead: answer(own, page), want: "the download is damaged"},
		{name: "another program", instead: answer(own, "#!/bin/sh\necho owned\n"), want: "the download is damaged"},
		{name: "a redirect to a page", want: "the download is damaged", instead: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == own {
				http.Redirect(w, r, "/login", http.StatusFound)
			}
			return r.URL.Path == own || answer("/login", page)(w, r)
		}},
		{name: "a download cut short", want: "cannot download", instead: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != own {
				return false
			}
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, "\x7fELF")
			panic(http.ErrAbortHandler)
		}},
		{name: "no such file", want: "cannot download", instead: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/bin/SHA256SUMS" {
				http.Error(w, page, http.StatusNotFound)
			}
			return r.URL.Path == "/bin/SHA256SUMS"
		}},
		{name: "an unknown option", args: []string{"--perfix", "/tmp"}, want: "unknown option --perfix"},
		{name: "an option without its value", args: []string{"--prefix"}, want: "--prefix needs a folder"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, test.instead)
			each(t, func(t *testing.T, shell string) {
				prefix := t.TempDir()
				program := filepath.Join(prefix, "bin", "coder")
				if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(program, []byte("old"), 0o755); err != nil {
					t.Fatal(err)
				}
				out, err := server.run(t, shell, test.env, append([]string{"--prefix", prefix}, test.args...)...)
				if err == nil || !strings.Contains(out, "error: ") || !strings.Contains(out, test.want) || !strings.Contains(out, "Try: ") {
					t.Errorf("got %v, want %q and what to do:\n%s", err, test.want, out)
				}
				if got, err := os.ReadFile(program); err != nil || string(got) != "old" {
					t.Errorf("the program before: %q, %v", got, err)
				}
				if left, err := os.ReadDir(filepath.Dir(program)); err != nil || len(left) != 1 {
					t.Errorf("left in the folder: %v, %v", left, err)
				}
			})
		})
	}
}

// tools makes a folder with these programs of the machine only, and with scripts in place of some.
func tools(t *testing.T, scripts map[string]string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// base is what the script needs, apart from a downloader and a program for checksums.
var base = []string{"id", "uname", "mkdir", "mktemp", "grep", "sed", "tr", "cut", "chmod", "mv", "rm", "cp", "dash"}

// The script gets along with the few programs that it names, and says which one is missing.
func TestInstallTools(t *testing.T) {
	t.Parallel()
	server := serve(t, nil)
	for _, test := range []struct {
		name    string
		scripts map[string]string
		tools   []string
		want    string // "": it installs
	}{
		{name: "curl and coreutils", tools: []string{"curl", "sha256sum"}},
		{name: "perl's checksums", tools: []string{"curl", "shasum", "perl"}},
		{name: "openssl's checksums", tools: []string{"curl", "openssl"}},
		{name: "wget", tools: []string{"wget", "sha256sum"}},
		{name: "no downloader", tools: []string{"sha256sum"}, want: "neither curl nor GNU wget"},
		{name: "a wget that trusts everything", scripts: map[string]string{"wget": "exec busybox wget \"$@\""}, tools: []string{"busybox", "sha256sum"}, want: "neither curl nor GNU wget"},
		{name: "no checksums", tools: []string{"curl"}, want: "no program that can verify"},
		{name: "another system", scripts: map[string]string{"uname": "echo Plan9"}, tools: []string{"curl", "sha256sum"}, want: "operating system Plan9"},
		{name: "Windows", scripts: map[string]string{"uname": "echo MINGW64_NT-10.0"}, tools: []string{"curl", "sha256sum"}, want: "install.ps1 | iex"},
		{name: "another processor", scripts: map[string]string{"uname": `if [ "$1" = -m ]; then echo riscv64; else echo Linux; fi`}, tools: []string{"curl", "sha256sum"}, want: "processor riscv64"},
		{name: "a processor that this build lacks", scripts: map[string]string{"uname": `if [ "$1" = -m ]; then echo armv7l; else echo Linux; fi`}, tools: []string{"curl", "sha256sum"}, want: "the server has no coder-linux-armv7, only coder-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			names := test.tools
			for _, name := range base {
				if _, replaced := test.scripts[name]; !replaced {
					names = append(names, name)
				}
			}
			prefix := t.TempDir()
			out, err := server.run(t, "dash", []string{"PATH=" + tools(t, test.scripts, names...)}, "--prefix", prefix)
			_, statErr := os.Stat(filepath.Join(prefix, "bin", "coder"))
			if test.want == "" {
				if err != nil || statErr != nil {
					t.Errorf("got %v, %v\n%s", err, statErr, out)
				}
				return
			}
			if err == nil || statErr == nil || !strings.Contains(out, test.want) {
				t.Errorf("got %v, want %q:\n%s", err, test.want, out)
			}
		})
	}
}

// A user who may not write to the folder is told so before anything is downloaded.
func TestInstallWithoutRights(t *testing.T) {
	t.Parallel()
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/install.sh" {
			t.Errorf("unexpected request for %s", r.URL.Path)
		}
		return false
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, shell string) {
		out, err := server.run(t, shell, nil, "--prefix", file) // not even root can make a folder below a file
		if err == nil || !strings.Contains(out, "cannot write to "+file+"/bin") || !strings.Contains(out, "--prefix") {
			t.Errorf("got %v:\n%s", err, out)
		}
	})
}

// The access URL is the operator's, and no part of it becomes code.
func TestScriptsQuote(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), "https://coder.example.com/it's/$(id)/")
	for path, want := range map[string]string{
		"/install.sh":  `server='https://coder.example.com/it'\''s/$(id)'`,
		"/install.ps1": `$server = 'https://coder.example.com/it''s/$(id)'`,
	} {
		w := httptest.NewRecorder()
		if err := b.ServeScript(w, httptest.NewRequest(http.MethodGet, path, nil)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "@SERVER@") {
			t.Errorf("%s lacks %s:\n%s", path, want, w.Body)
		}
		if got := w.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("%s: Content-Type %s", path, got)
		}
		again := httptest.NewRequest(http.MethodGet, path, nil)
		again.Header.Set("If-None-Match", w.Header().Get("ETag"))
		if w = httptest.NewRecorder(); b.ServeScript(w, again) != nil || w.Code != http.StatusNotModified {
			t.Errorf("%s with its ETag: %d, want 304", path, w.Code)
		}
	}
}

func TestShellcheck(t *testing.T) {
	t.Parallel()
	for _, shell := range shells {
		words := append(strings.Fields(shell), "-n", "install.sh")
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", "install.sh").CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v: install it, or run scripts/test-prerequisites\n%s", err, out)
	}
}
