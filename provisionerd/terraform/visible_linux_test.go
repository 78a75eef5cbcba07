package terraform_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// hostSetup is the variable that names the setup of a TestFilesOfTheHost that runs with a host's files of its own.
const hostSetup = "TEST_FILES_OF_THE_HOST"

// serviceAccount is the account of a service without root, as the packages make it.
const serviceAccount = 12345

// hostFiles are files that the service's account may read, and that neither jobs nor workspaces may, except those whose text is "open".
func hostFiles(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{
		"/etc/codermesh/tls.key":             "SECRET", // any file of an administrator's
		"/etc/corp/secret.pem":               "SECRET",
		"/etc/ssl/private/server.key":        "SECRET",
		"/etc/ssl/certs/of-the-group.pem":    "SECRET", // not for everyone
		"/etc/ssl/certs/named.pem":           "SECRET", // by a setting
		"/opt/app/key.pem":                   "SECRET", // by a setting
		"/opt/app/conf/deep/other.key":       "SECRET", // by a setting, through a link
		"/opt/codermesh/state":               "SECRET", // in a folder that a setting names
		"/usr/local/etc/app/postgres-url":    "SECRET", // by a setting
		"/etc/gitconfig":                     "SECRET",
		"/etc/corp/ca.pem":                   "open", // linked from /etc/ssl/certs
		"/etc/aws/config":                    "open", // named by --provisioner-read
		"/opt/app/bin/program":               "open",
		"/opt/app/conf/deep/harmless":        "open",
		"/usr/local/etc/app/harmless":        "open",
		"/usr/local/etc/other":               "open",
		"/etc/ca-certificates/update.d/hook": "open",
	}
	packages, err := os.ReadFile("../../packaging/nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed := regexp.MustCompile(`(?m)dst: (/etc/\S+)\n\s+type: config`).FindAllStringSubmatch(string(packages), -1)
	if len(installed) < 2 {
		t.Fatalf("the packages install %q", installed)
	}
	for _, file := range installed {
		all[file[1]] = "SECRET"
	}
	return all
}

// TestFilesOfTheHost checks in each setup what jobs and workspaces see of a host's files. It makes the host's folders in a namespace of its
// own, with files that the service's account can read: the packages of earlier versions installed some of them like that.
func TestFilesOfTheHost(t *testing.T) {
	if setup := os.Getenv(hostSetup); setup != "" {
		readHost(t, setup)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("makes the host's folders: run as root")
	}
	for _, setup := range []string{"root with bubblewrap", "root without bubblewrap", "plain user with bubblewrap"} {
		t.Run(setup, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("/var/tmp", "cmhost")
			if err != nil {
				t.Fatal(err)
			}
			home, err := os.MkdirTemp("/run", "cmh")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				for _, dir := range []string{dir, home} {
					if err := os.RemoveAll(dir); err != nil {
						t.Error(err)
					}
				}
			})
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			script := "set -e; cp -a /etc " + dir + "/etc; cp " + self + " " + dir + "/tests; chmod 755 " + dir + "\n" +
				"mount --bind " + dir + "/etc /etc; mount -t tmpfs -o mode=755 none /opt; mount -t tmpfs -o mode=755 none /usr/local/etc\n" +
				"rm -f /etc/gitconfig; umask 022\n"
			for _, name := range slices.Sorted(maps.Keys(hostFiles(t))) {
				text := hostFiles(t)[name]
				script += fmt.Sprintf("mkdir -p %s; echo '%s %s' >%s; chown root:%d %s\n", filepath.Dir(name), text, name, name, serviceAccount, name)
			}
			script += "chmod 755 /etc/ssl/private; chmod 640 /etc/codermesh/* /etc/ssl/certs/of-the-group.pem; chmod 755 /opt/app/bin/program\n" +
				"ln -s /etc/corp/ca.pem /etc/ssl/certs/linked.pem; ln -s /etc/codermesh/server.env /etc/ssl/certs/evil.pem; ln -s app/conf/deep /opt/link\n" +
				"chown -R " + fmt.Sprint(serviceAccount) + " /opt/codermesh; exec \"$@\"\n"
			args := []string{"--mount", "--propagation", "private", "sh", "-c", script, "sh"}
			env := []string{"PATH=" + os.Getenv("PATH"), hostSetup + "=" + setup, "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
			if strings.HasPrefix(setup, "plain") {
				args = append(args, "setpriv", "--reuid", fmt.Sprint(serviceAccount), "--regid", fmt.Sprint(serviceAccount), "--clear-groups")
				if err := os.Chown(home, serviceAccount, serviceAccount); err != nil {
					t.Fatal(err)
				}
				env[2], env[3] = "HOME="+home, "TMPDIR="+home
			}
			cmd := exec.CommandContext(t.Context(), "unshare", append(args, dir+"/tests", "-test.run", "^TestFilesOfTheHost$", "-test.v")...)
			cmd.Env = env
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\n--- PASS: TestFilesOfTheHost") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// hostWorks are commands that work for jobs and workspaces, by what they need of the host.
var hostWorks = map[string]string{
	"names of hosts":      "getent hosts localhost",
	"names of accounts":   "getent passwd root",
	"authorities":         "test -s /etc/ssl/certs/ca-certificates.crt && cat /etc/ssl/certs/ca-certificates.crt",
	"time zone":           "cat /etc/localtime",
	"alternatives":        "echo x | awk '{print}'",
	"a login shell":       "bash -lc true",
	"libraries":           "cat /etc/ld.so.cache",
	"the resolver":        "cat /etc/resolv.conf",
	"name of the system":  ". /etc/os-release",
	"a program of /opt":   "test -x /opt/app/bin/program",
	"a link to an open":   "cat /opt/link/harmless",
	"TLS of Python":       "! command -v python3 || python3 -c 'import ssl; ssl.create_default_context()'",
	"Perl":                "perl -e 'use POSIX;'",
	"git":                 "git init -q \"$(mktemp -d)\"",
	"a temporary file":    "f=$(mktemp) && rm $f",
	"nothing to write to": "! ( echo x >/etc/x || mkdir /x || echo x >/opt/x )",
}

// checkReads checks what the script of readHost printed in a job or a workspace.
func checkReads(t *testing.T, who, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if strings.Contains(line, "SECRET ") {
			t.Errorf("%s reads %s", who, line)
		}
	}
	for name, text := range hostFiles(t) {
		if text == "open" && !strings.Contains(log, "open "+name) {
			t.Errorf("%s does not read %s", who, name)
		}
	}
	if got := strings.Count(log, "open /etc/corp/ca.pem"); got < 2 {
		t.Errorf("%s reads a linked certificate %d times, want 2", who, got)
	}
	for what := range hostWorks {
		if !strings.Contains(log, "WORKS <"+what+">") {
			t.Errorf("%s lacks %s", who, what)
		}
	}
	if t.Failed() {
		t.Logf("%s:\n%s", who, log)
	}
}

// readHost lets a job and a workspace of one setup read.
func readHost(t *testing.T, setup string) {
	t.Helper()
	var opts terraform.Options
	if setup == "root without bubblewrap" {
		opts = withoutBubblewrap(t)
	} else {
		opts = options(t)
	}
	opts.Hidden = []string{"/etc/ssl/certs/named.pem", "/opt/app/key.pem", "/opt/link/other.key", "/opt/codermesh", "/usr/local/etc/app/postgres-url"}
	opts.Readable = []string{"/etc/aws"}
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	if bubblewrap := strings.Contains(e.Isolation(), "bubblewrap"); bubblewrap == strings.Contains(setup, "without") {
		t.Fatalf("isolation is %q", e.Isolation())
	}
	files := hostFiles(t)
	var script strings.Builder
	wanted := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), name) {
			t.Fatalf("the service itself reads %s: %q, %v: the attack is wrong", name, text, err)
		}
		fmt.Fprintf(&script, "cat %s\n", name)
		if files[name] == "open" {
			wanted++
		}
	}
	script.WriteString("cat /etc/ssl/certs/linked.pem /etc/ssl/certs/evil.pem /opt/link/other.key\ncat /etc/codermesh/* /etc/*/* /opt/*/* | grep -a SECRET\n")
	for _, what := range slices.Sorted(maps.Keys(hostWorks)) {
		fmt.Fprintf(&script, "( %s ) >/dev/null && echo 'WORKS <%s>'\n", hostWorks[what], what)
	}
	log, result := runScript(t, e, script.String())
	if result.GetError() != "" {
		t.Fatalf("%s\n%s", result.GetError(), log)
	}
	checkReads(t, setup+": a job", log)

	m := metadata()
	id := uuid.New()
	m.WorkspaceId = id[:]
	where, bodies := posted(t)
	template := workspaceOf("{\n" + script.String() + "} >out 2>&1; curl -s --data-binary @out " + where + "; sleep 600")
	j := newTrial(t, template)
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
	log = <-bodies
	j = newTrial(t, template)
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, Metadata: m, State: state}))
	checkReads(t, setup+": a workspace", log)
}

// workspaceOf returns a template whose workspace is a process that runs a script.
func workspaceOf(script string) map[string]string {
	all := files(`
data "coder_workspace" "me" {}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process start -- /bin/bash -c \"$(cat script.sh)\""
  }
}
`)
	all["script.sh"] = script
	return all
}

// posted returns a URL, and a channel with what is sent there first. Its path is a secret: a request that is meant for an
// earlier server at the port does not count.
func posted(t *testing.T) (url string, bodies <-chan string) {
	t.Helper()
	came := make(chan string, 1)
	path := "/" + rand.Text()
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = fmt.Appendf(body, "\nthe rest is missing: %v", err) // a part of it fails the test as well
		}
		select {
		case came <- string(body):
		default: // the first counts
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + path, came
}

// TestReadableAndHidden refuses settings that contradict each other.
func TestReadableAndHidden(t *testing.T) {
	t.Parallel()
	for readable, want := range map[string]string{
		"/srv/app/key": "the server's settings name it as a secret", "/": "name a folder below it", "/run": "name a folder below it", "relative": "absolute path",
	} {
		opts := options(t)
		opts.Readable, opts.Hidden = []string{readable}, []string{"/srv/app/key"}
		if _, err := terraform.New(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", readable, err, want)
		}
	}
}
