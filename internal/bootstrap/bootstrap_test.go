package bootstrap_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/bootstrap"
	"github.com/codermesh/codermesh/v2/internal/scratch"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// agent is the program that the server serves in these tests.
const agent = "#!/bin/sh\necho agent=$1 url=$CODER_AGENT_URL auth=$CODER_AGENT_AUTH token=$CODER_AGENT_TOKEN found=$(command -v coder) home=$HOME tf=$TF_REATTACH_PROVIDERS\n"

func TestMain(m *testing.M) {
	code := m.Run()
	if err := scratch.Sweep("/tmp", os.Geteuid()); err != nil { // the folders of scripts that tests killed
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// odd are downloaders with faults that are met in images. They come before the machine's own, "$real".
var odd = map[string]struct{ as, script string }{
	"busybox-static's wget": {"wget", `case " $* " in *" -T "*) kill -s SEGV $$ ;; esac; exec "$real" wget "$@"`},
	"an old curl":           {"curl", `case " $* " in *timeout*|*max-time*) echo "curl: option: is unknown" >&2; exit 2 ;; esac; exec "$real" "$@"`},
	"wget without TLS":      {"wget", `echo "wget: not an http or ftp url: $*" >&2; exit 1`},
}

// oddTools makes a PATH with a downloader that has a fault, and with busybox, as in an image whose programs are busybox.
func oddTools(t *testing.T, name string) string {
	t.Helper()
	o := odd[name]
	program := "curl"
	if o.as == "wget" {
		program = "busybox"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := tools(t, "busybox")
	script := fmt.Sprintf("#!/bin/sh\nreal=%q\n%s\n", path, o.script)
	if err := os.WriteFile(filepath.Join(dir, o.as), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tools makes a PATH with the programs that a script may use, and the downloader under test.
func tools(t *testing.T, downloader string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "mktemp", "chmod", "sleep", "uname", "cat", "rm", "date", "mkfifo", "mv", downloader} {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start runs the script as the provider would fill it in and returns its lines.
func start(t *testing.T, shell []string, url, path string, env ...string) *bufio.Scanner {
	t.Helper()
	return run(t, bootstrap.Script("linux", "amd64"), shell, url, path, env...)
}

// run is start with another script.
func run(t *testing.T, script string, shell []string, url, path string, env ...string) *bufio.Scanner {
	t.Helper()
	script = strings.NewReplacer("${ACCESS_URL}", url+"/", "${AUTH_TYPE}", "token").Replace(script)
	// The script never ends on its own: the test would wait forever for a missing line.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], "-c", script)...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + path, "HOME=" + t.TempDir(), "CODER_AGENT_TOKEN=t0ken"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The script never ends on its own; neither do the programs that it waits for.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// until reads lines until one contains the text.
func until(t *testing.T, lines *bufio.Scanner, want string) string {
	t.Helper()
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if strings.Contains(lines.Text(), want) {
			return lines.Text()
		}
	}
	t.Fatalf("no line with %q in:\n%s", want, strings.Join(seen, "\n"))
	return ""
}

func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, name := range []string{"sh", "dash", "bash"} {
		if path, err := exec.LookPath(name); err == nil {
			found[name] = []string{path}
		}
	}
	if path, err := exec.LookPath("busybox"); err == nil {
		found["busybox"] = []string{path, "sh"}
	}
	return found
}

func TestFetchAndBecome(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path != "/bin/coder-linux-amd64" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, agent)
	}))
	t.Cleanup(server.Close)
	runs := 0
	for name, shell := range shells(t) {
		for _, downloader := range []string{"curl", "wget", "busybox"} {
			if _, err := exec.LookPath(downloader); err != nil {
				continue
			}
			runs++
			t.Run(name+" with "+downloader, func(t *testing.T) {
				line := until(t, start(t, shell, server.URL, tools(t, downloader)), "agent=")
				for _, want := range []string{"agent=agent ", "url=" + server.URL + "/ ", "auth=token ", "token=t0ken ", "found=/tmp/coder."} {
					if !strings.Contains(line, want) {
						t.Errorf("%q does not have %q", line, want)
					}
				}
			})
		}
	}
	if runs == 0 {
		t.Fatal("this machine has neither curl nor wget nor busybox")
	}
	if got := int(requests.Load()); got != runs {
		t.Errorf("%d requests for %d starts", got, runs)
	}
}

// TestOddDownloaders: a program that crashes or does not know an option is tried without options, or another is, for the agent and for reports.
func TestOddDownloaders(t *testing.T) {
	t.Parallel()
	for name := range odd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, agent) }))
			t.Cleanup(server.Close)
			until(t, start(t, []string{"dash"}, server.URL, oddTools(t, name)), "agent=agent ")
			url, heard := reports(t)
			until(t, start(t, []string{"dash"}, url, oddTools(t, name)), "the server has no agent for amd64")
			if got := testwait.For(t, "a report", heard); !strings.HasPrefix(got, "t0ken\nThe agent cannot be fetched") {
				t.Errorf("report %q", got)
			}
		})
	}
}

// TestFolderOfKilledScript: a sweep of temporary folders leaves the script's folder alone during the download and while the program that
// the script becomes runs, and removes it once that program was killed.
func TestFolderOfKilledScript(t *testing.T) {
	t.Parallel()
	sweep := func() {
		if err := scratch.Sweep("/tmp", os.Geteuid()); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sweep()
		fmt.Fprint(w, "#!/bin/sh\necho \"program $$ in ${0%/*}\"\nwhile :; do sleep 3600 9<&-; done\n")
	}))
	t.Cleanup(server.Close)
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			line := until(t, start(t, shell, server.URL, os.Getenv("PATH")), "program")
			var pid int
			var folder string
			if _, err := fmt.Sscanf(line, "program %d in %s", &pid, &folder); err != nil || !strings.HasPrefix(folder, "/tmp/coder.") {
				t.Fatalf("line %q: %v", line, err)
			}
			gone := func() bool {
				_, err := os.Stat(filepath.Join(folder, "coder"))
				return err != nil
			}
			sweep()
			if gone() {
				t.Fatal("the folder of a running program was removed")
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "the folder of the killed program is gone", func() error {
				if sweep(); !gone() {
					return fmt.Errorf("%s is there", folder)
				}
				return nil
			})
		})
	}
}

// TestRetries uses a server that fails at first.
func TestRetries(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, agent)
	}))
	t.Cleanup(server.Close)
	lines := start(t, []string{"sh"}, server.URL, os.Getenv("PATH"))
	until(t, lines, "bin/coder-linux-amd64 failed")
	until(t, lines, "agent=agent")
}

// TestFullDisk: the agent does not fit into the workspace's /tmp. The script says so, whatever the downloader calls it, with the figures.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) }))
	t.Cleanup(server.Close)
	for _, downloader := range []string{"curl", "wget", "busybox"} {
		t.Run(downloader, func(t *testing.T) {
			t.Parallel()
			path := tools(t, downloader)
			df, err := exec.LookPath("df")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(df, filepath.Join(path, "df")); err != nil {
				t.Fatal(err)
			}
			shell := []string{"unshare", "--mount", "/bin/sh", "-c", `/bin/mount --bind "$PATH" /mnt && /bin/mount -t tmpfs -o size=256k tmpfs /tmp && PATH=/mnt exec /bin/sh "$@"`, "sh"}
			until(t, start(t, shell, server.URL, path), "failed: the workspace's disk is full: 0 of 256K free in /tmp/coder.")
		})
	}
}

// TestStays covers problems that retries cannot solve: the script reports the problem and stays.
func TestStays(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "\x7fELFnonsense") }))
	t.Cleanup(server.Close)
	for name, shell := range shells(t) {
		for problem, c := range map[string]struct {
			path string
			env  string
			want string
		}{
			"no downloader": {path: tools(t, ""), want: "install curl, wget or busybox"},
			"no token":      {path: os.Getenv("PATH"), env: "CODER_AGENT_TOKEN=", want: "CODER_AGENT_TOKEN is not set"},
			"wrong program": {path: os.Getenv("PATH"), want: "does not run here"},
		} {
			if name == "busybox" && problem != "no token" {
				continue // it is a downloader itself, and reads anything that is not a program as a script
			}
			t.Run(name+" "+problem, func(t *testing.T) {
				t.Parallel()
				lines := start(t, shell, server.URL, c.path, c.env)
				until(t, lines, c.want)
				until(t, lines, "waiting, so that you can look")
			})
		}
	}
}

// TestStartedByBuild runs the script in the environment of a build, whose folders disappear.
func TestStartedByBuild(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, agent) }))
	t.Cleanup(server.Close)
	line := until(t, start(t, []string{"sh"}, server.URL, os.Getenv("PATH"), "TF_REATTACH_PROVIDERS={}", "HOME=/gone", "TMPDIR=/gone"), "agent=")
	if strings.Contains(line, "/gone") || !strings.HasSuffix(line, "tf=") {
		t.Errorf("the agent has the build's environment: %s", line)
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	for _, platform := range []string{"linux/amd64", "linux/arm64", "linux/armv7", "darwin/amd64", "darwin/arm64"} {
		system, arch, _ := strings.Cut(platform, "/")
		script := bootstrap.Script(system, arch)
		for _, want := range []string{"ARCH=" + arch + "\n", "${ACCESS_URL}", "${AUTH_TYPE}", "program=coder-" + system + "-$ARCH\n"} {
			if !strings.Contains(script, want) {
				t.Errorf("the script for %s does not have %q", platform, want)
			}
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		script := bootstrap.Script("windows", arch)
		for _, want := range []string{"coder-windows-" + arch + ".exe", "${ACCESS_URL}", "${AUTH_TYPE}", "Tls12", "SHA256SUMS", "startup-problem"} {
			if !strings.Contains(script, want) {
				t.Errorf("the script for Windows on %s does not have %q", arch, want)
			}
		}
		if strings.Contains(script, "@ARCH@") || strings.ContainsFunc(script, func(r rune) bool { return r > 127 }) {
			t.Error("the script for Windows has a placeholder, or letters that PowerShell 5.1 reads in the system's code page")
		}
	}
	if got := bootstrap.Script("plan9", "mips") + bootstrap.Script("linux", "mips") + bootstrap.Script("windows", "armv7"); got != "" {
		t.Errorf("a script for an unknown platform: %s", got)
	}
}

// reports starts a server that has no agent and receives error reports.
func reports(t *testing.T) (url string, heard chan string) {
	t.Helper()
	heard = make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v2/workspaceagents/me/startup-problem" {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		heard <- string(body)
	}))
	t.Cleanup(server.Close)
	return server.URL, heard
}

// TestReport: errors reach the server with every downloader, and the token is in no argument.
func TestReport(t *testing.T) {
	t.Parallel()
	for name, shell := range shells(t) {
		for _, downloader := range []string{"curl", "wget", "busybox"} {
			if _, err := exec.LookPath(downloader); err != nil {
				continue
			}
			t.Run(name+" with "+downloader, func(t *testing.T) {
				t.Parallel()
				url, heard := reports(t)
				until(t, start(t, shell, url, tools(t, downloader)), "the server has no agent for amd64")
				got := testwait.For(t, "a report", heard)
				if want := "t0ken\nThe agent cannot be fetched: the server has no agent for amd64"; !strings.HasPrefix(got, want) {
					t.Errorf("report %q, want %q", got, want)
				}
			})
		}
	}
}

// secured starts a server with a certificate valid between two days, and writes that certificate to a file.
func secured(t *testing.T, from, to time.Time) (url, file string, posts *atomic.Int32) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	posts = new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
		fmt.Fprint(w, agent)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, file, posts
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, downloader := range []string{"curl", "wget"} {
		if _, err := exec.LookPath(downloader); err != nil {
			continue
		}
		t.Run("unknown authority with "+downloader, func(t *testing.T) {
			t.Parallel()
			url, _, posts := secured(t, now.Add(-time.Hour), now.Add(time.Hour))
			path := tools(t, downloader)
			busybox, err := exec.LookPath("busybox") // it would accept any certificate
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(busybox, filepath.Join(path, "busybox")); err != nil {
				t.Fatal(err)
			}
			until(t, start(t, []string{"dash"}, url, path), "certificate is not trusted here")
			if posts.Load() != 0 {
				t.Error("a server that is not trusted was told the token")
			}
		})
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed")
	}
	for name, clock := range map[string]string{"the clock is wrong": "01 Jan 1970", "the certificate is old": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, file, _ := secured(t, now.Add(-48*time.Hour), now.Add(-24*time.Hour))
			path := tools(t, "curl")
			want := "certificate is out of date"
			if clock != "" {
				want = "this machine's clock is wrong: it says 01 Jan 1970, the server says " + now.UTC().Format("02 Jan 2006")
				fake := filepath.Join(path, "date")
				if err := os.Remove(fake); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(fake, []byte("#!/bin/sh\necho "+clock+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			until(t, start(t, []string{"dash"}, url, path, "CURL_CA_BUNDLE="+file), want)
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	free := "http://" + testport.Addr()
	for _, downloader := range []string{"curl", "wget", "busybox"} {
		if _, err := exec.LookPath(downloader); err != nil {
			continue
		}
		t.Run(downloader, func(t *testing.T) {
			t.Parallel()
			until(t, start(t, []string{"sh"}, free, tools(t, downloader)), "does a firewall let this workspace reach that port?")
			until(t, start(t, []string{"sh"}, "http://no-such-host.invalid", tools(t, downloader)), "name does not resolve here")
		})
	}
}
