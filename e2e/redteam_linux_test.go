package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// redTeam is a deployment under attack by the scripts in testdata/attacks. Each script prints a line "open: NAME: WHAT" for what it reaches, and
// "closed: NAME" at its end.
type redTeam struct {
	*deployment
	mark   string            // the text that no attacker may read
	key    int               // of shared memory that a job leaves
	files  []string          // with the mark, for the operator only
	tokens map[string]string // sessions by the user's name
}

// setups are servers that are about to start, by how they confine jobs.
var setups = map[string]func(*testing.T) *deployment{
	"root with bubblewrap":       func(t *testing.T) *deployment { return prepare(t) },
	"plain user with bubblewrap": func(t *testing.T) *deployment { return preparePlain(t) },
	"root without bubblewrap": func(t *testing.T) *deployment {
		dir, err := os.MkdirTemp("/var/lib", "cmalone") // jobs write below /tmp
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		d := prepareIn(t, dir)
		bin := filepath.Join(d.dir, "bin")
		write(t, filepath.Join(bin, "bwrap"), "#!/bin/sh\nexit 1\n", 0o755)
		d.extra = append(d.extra, "PATH="+bin+":"+os.Getenv("PATH"))
		return d
	},
}

// TestRedTeam attacks a whole server in each setup in which jobs are confined: what is confined differs in each of them.
func TestRedTeam(t *testing.T) {
	t.Parallel()
	asRoot(t)
	for name, newServer := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &redTeam{deployment: newServer(t), key: 1 + int(uuid.New().ID()&0x3fffffff), tokens: map[string]string{}}
			r.mark = "mark-" + strings.ReplaceAll(uuid.NewString(), "-", "")
			r.installSettings()
			r.attack()
		})
	}
}

// write makes a file and its folder.
func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// installSettings gives the server an /etc of its own, in which /etc/codermesh is readable for everyone, as after a careless administrator.
func (r *redTeam) installSettings() {
	r.t.Helper()
	etc := filepath.Join(r.dir, "etc")
	write(r.t, filepath.Join(etc, "codermesh", "server.env"), "CODER_SECRET="+r.mark+"\n", 0o644)
	write(r.t, filepath.Join(etc, "codermesh", "tls.key"), r.mark+"\n", 0o644)
	r.files = []string{"/etc/codermesh/server.env", "/etc/codermesh/tls.key"}
	account := ""
	if r.account != nil { // the mount is root's
		account = fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups ", r.account.Uid, r.account.Gid)
		r.account = nil
	}
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -c 'mount -t overlay overlay -o lowerdir=%s:/etc /etc && exec %s%s \"$@\"' sh \"$@\"\n", etc, account, r.program)
	r.program = filepath.Join(r.dir, "with-etc")
	write(r.t, r.program, script, 0o755)
	r.extra = append(r.extra, "CODER_PROVISIONER_DAEMON_PSK="+r.mark, "TF_TOKEN_registry_invalid="+r.mark)
}

// closed fails the test unless the named attacks ended and reached nothing.
func (r *redTeam) closed(output string, attacks ...string) {
	r.t.Helper()
	for _, name := range attacks {
		if !strings.Contains(output, "closed: "+name) {
			r.t.Errorf("the attack %s did not end:\n%s", name, output)
		}
	}
	for line := range strings.Lines(output) {
		for _, word := range []string{"open: ", "failed: "} {
			if at := strings.Index(line, word); at >= 0 {
				r.t.Error(strings.TrimSpace(line[at:]))
			}
		}
	}
}

// outside runs a script as a program elsewhere does and returns its output.
func (r *redTeam) outside(script string, args ...string) string {
	r.t.Helper()
	interpreter := "sh"
	if filepath.Ext(script) == ".py" {
		interpreter = "/usr/bin/python3"
	}
	script, err := filepath.Abs(filepath.Join("testdata", "attacks", script))
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), "unshare", append([]string{"--mount", interpreter, script}, args...)...) // scripts mount
	cmd.Dir, cmd.Env = r.t.TempDir(), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "CODER_CONFIG_DIR=" + r.dir}
	output, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%s: %v", script, err)
	}
	return string(output)
}

// by runs the command line with the session of a user and returns all of its output.
func (r *redTeam) by(user string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*settle)
	defer cancel()
	cmd := r.commandAs(ctx, user, args...)
	cmd.Env = append(cmd.Env, "CODER_URL="+r.url(), "CODER_SESSION_TOKEN="+r.tokens[user])
	output, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%s: coder %s: %v\n%s", user, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// asks sends a request as a user.
func (r *redTeam) asks(user, method, path string, body, into any) {
	r.t.Helper()
	if err := call(method, r.url()+path, r.tokens[user], body, into); err != nil {
		r.t.Fatal(err)
	}
}

// join makes the users: eve administers the organization, uma the users, vic runs workspaces of eve's template, and bob has never started one.
func (r *redTeam) join() {
	r.t.Helper()
	r.coder(r.firstLogin()...)
	token, err := signIn(r.url(), "ada@example.com")
	if err != nil {
		r.t.Fatal(err)
	}
	r.token, r.tokens["ada"] = token, token
	type roles struct {
		Roles []string `json:"roles"`
	}
	for _, name := range []string{"eve", "uma", "vic", "bob"} {
		r.asks("ada", http.MethodPost, "/api/v2/users", map[string]any{
			"username": name, "email": name + "@example.com", "password": password, "login_type": "password", "organization_ids": []string{r.organization()},
		}, nil)
		if r.tokens[name], err = signIn(r.url(), name+"@example.com"); err != nil {
			r.t.Fatal(err)
		}
	}
	r.asks("ada", http.MethodPut, "/api/v2/organizations/default/members/eve/roles", roles{[]string{"organization-admin"}}, nil)
	r.asks("ada", http.MethodPut, "/api/v2/users/uma/roles", roles{[]string{"user-admin"}}, nil)
}

// organization returns the id of the default organization.
func (r *redTeam) organization() string {
	r.t.Helper()
	var o struct{ ID string }
	r.asks("ada", http.MethodGet, "/api/v2/organizations/default", nil, &o)
	return o.ID
}

// meeting is a server at which one job waits.
type meeting struct {
	*httptest.Server
	waiting chan struct{} // a job waits
	release chan struct{} // closed to let it go on
}

func newMeeting(t *testing.T) *meeting {
	m := &meeting{waiting: make(chan struct{}), release: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(m.waiting)
		select {
		case <-m.release:
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// victim finds the processes of the job that holds the mark, the folder in which it works, and the sockets of its slot.
func (r *redTeam) victim() (pids, sockets []string, folder string) {
	r.t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		environ, _ := os.ReadFile(filepath.Join(entry, "environ"))
		if !strings.Contains(string(environ), "MARK="+r.mark) {
			continue
		}
		pids = append(pids, filepath.Base(entry))
		if folder, err = os.Readlink(filepath.Join(entry, "cwd")); err != nil {
			r.t.Fatal(err)
		}
	}
	if len(pids) == 0 {
		r.t.Fatal("no process of the waiting job was found")
	}
	_ = filepath.WalkDir(filepath.Dir(folder), func(name string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type() == os.ModeSocket {
			sockets = append(sockets, name)
		}
		return nil
	})
	if len(sockets) == 0 {
		r.t.Fatalf("no sockets beside %s were found", folder)
	}
	return pids, sockets, folder
}

// build creates a workspace in which commands run, and returns its log.
func (r *redTeam) build(user, workspace, commands string) string {
	r.t.Helper()
	return r.by(user, "create", workspace, "-t", "attacks", "--parameter", "commands="+commands, "-y")
}

// inBobsName has eve create a workspace for bob from her template and returns the build's log.
func (r *redTeam) inBobsName(commands string) string {
	r.t.Helper()
	var template struct {
		ID string `json:"id"`
	}
	r.asks("eve", http.MethodGet, "/api/v2/organizations/default/templates/attacks", nil, &template)
	r.asks("eve", http.MethodPost, "/api/v2/organizations/default/members/bob/workspaces", map[string]any{
		"name": "dev", "template_id": template.ID, "rich_parameter_values": []map[string]string{{"name": "commands", "value": commands}},
	}, nil)
	testwait.Until(r.t, "the build for bob has ended", func() error {
		var w workspaceJSON
		r.asks("eve", http.MethodGet, "/api/v2/users/bob/workspace/dev", nil, &w)
		if status := w.LatestBuild.Job.Status; status == "pending" || status == "running" {
			return errors.New(status)
		}
		return nil
	})
	return r.by("eve", "logs", "bob/dev")
}

func (r *redTeam) attack() {
	t := r.t
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	r.closed(r.outside("rebind.sh", r.url()), "rebind")
	r.join()
	r.closed(r.outside("raise.sh", r.url(), r.tokens["uma"], r.organization()), "raise")
	r.closed(r.outside("init.sh", r.url(), r.tokens["eve"]), "init")
	folder, err := filepath.Abs("testdata/attacks")
	if err != nil {
		t.Fatal(err)
	}
	r.by("eve", "templates", "push", "attacks", "-d", folder, "-y")

	m := newMeeting(t)
	built := make(chan string, 1)
	go func() {
		built <- r.build("vic", "dev", fmt.Sprintf("sh ./victim.sh %s %d %s", r.mark, r.key, m.URL))
	}()
	select {
	case <-m.waiting:
	case log := <-built:
		t.Fatalf("the victim's job did not wait:\n%s", log)
	}
	r.besides()
	close(m.release)
	if log := <-built; strings.Contains(log, "failed: ") {
		t.Errorf("the victim's job:\n%s", log)
	}

	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if _, err := os.Lstat(filepath.Join(dir, r.mark)); !os.IsNotExist(err) {
			t.Errorf("the job left something in %s: %v", dir, err)
		}
	}
	r.closed(r.inBobsName(fmt.Sprintf("sh ./leftovers.sh %s %d; sh ./steal.sh %s", r.mark, r.key, r.url())), "leftovers", "steal")
	var w workspaceJSON
	r.asks("vic", http.MethodGet, "/api/v2/users/me/workspace/dev", nil, &w)
	if got := r.by("vic", "ssh", "dev", "--", "echo INSIDE"); got != "INSIDE\n" {
		t.Errorf("the owner's shell: %q", got)
	}
	for _, admin := range []string{"ada", "eve"} {
		r.closed(r.outside("share.sh", r.url(), r.tokens[admin], w.ID, "vic/dev", coder), "share")
	}
}

// besides attacks from a job while another one waits. The same scripts outside of a sandbox show that what they try would work.
func (r *redTeam) besides() {
	t := r.t
	t.Helper()
	abstract := "cm-" + uuid.NewString()
	l, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close()
		}
	}()
	config := filepath.Join(r.dir, "config-admin")
	secrets := append([]string{filepath.Join(config, "state-encryption.key"), filepath.Join(config, "postgres", "password")}, r.files...)
	database := filepath.Join(config, "postgres", "data", ".s.PGSQL.5432")
	pids, sockets, folder := r.victim()
	neighbour := []string{r.mark, folder, strings.Join(pids, ","), strings.Join(sockets, ",")}
	probe := []string{strconv.Itoa(r.cmd.Process.Pid), strings.Join(secrets, ","), abstract, database}
	written := filepath.Join(config, "written")

	control := r.outside("neighbour.py", neighbour...) + r.outside("probe.py", append(slices.Clone(probe), r.dir)...)
	probe = append(probe, config)
	for _, reached := range []string{
		"its files", "its socket", "a signal to process", "the environment of process", "reads " + secrets[0], "the server's environment",
		"signals the server", "an abstract socket", "the socket " + database, "unshare --mount",
	} {
		if !strings.Contains(control, reached) {
			t.Errorf("outside of a sandbox, the scripts do not reach %q:\n%s", reached, control)
		}
	}
	loaded := exec.CommandContext(t.Context(), "/bin/true")
	loaded.Env = []string{"LD_DEBUG=libs", "LD_DEBUG_OUTPUT=" + filepath.Join(r.dir, "loaded")}
	if err := loaded.Run(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"planted", "loaded.*"} {
		if made, err := filepath.Glob(filepath.Join(r.dir, name)); err != nil || len(made) == 0 {
			t.Errorf("outside of a sandbox, the attacks make no file %s: %v", name, err)
		}
	}
	log := r.build("eve", "dev", strings.Join([]string{
		"/usr/bin/python3 ./neighbour.py " + strings.Join(neighbour, " "), "/usr/bin/python3 ./probe.py " + strings.Join(probe, " "),
		"sh ./settings.sh " + r.mark + " " + strings.Join(r.files, " "), "sh ./preload.sh " + written,
	}, "; "))
	r.closed(log, "neighbour", "probe", "settings", "preload")
	for what, name := range map[string]string{"the daemon's programs wrote": written + "*", "the job planted": filepath.Join(config, "planted")} {
		if made, err := filepath.Glob(name); err != nil || len(made) > 0 {
			t.Errorf("%s %q: %v", what, made, err)
		}
	}
}
