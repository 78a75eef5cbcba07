package diagnose

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func supportCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "support", Short: "Collect diagnostics for support", Example: `  coder support bundle dev --yes`}
	cmd.AddCommand(supportBundleCmd(g))
	return cmd
}

// bundleOptions are what a user wants in a bundle.
type bundleOptions struct {
	workspace, agent string
	files            []string // of the workspace
	template         string   // [organization/]name
	workspaces       int      // how many the list has; 0: up to maxWorkspaces
	profiles         bool
	url              string // the server's, instead of the session's
	output           string
}

func supportBundleCmd(g *global.Flags) *cobra.Command {
	var opts bundleOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "bundle [WORKSPACE [AGENT]]",
		Short: "Create a support bundle",
		Long: `Write a zip file with diagnostics: the findings of "coder doctor", a network report, versions, settings and, as far as you may see them,
the deployment's health, servers, participants of the mesh, workspaces, provisioners and failed jobs. For a workspace it adds the workspace's state, and
the log and timings of its last build and its agents' logs, or those of one agent.

Session tokens, passwords, keys, credentials in URLs, and the values of agents' environment variables are removed. A workspace's logs contain whatever its scripts printed, and files are as they are, but for what has the form of a secret. The command
lists the files and sends nothing: review them before you share them.`,
		Example: `  coder support bundle
  coder support bundle dev --output-file /tmp/dev.zip --yes
  coder support bundle dev --workspace-file ~/.local/share/code-server/coder-logs/code.log
  coder support bundle --pprof --template docker`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.output == "" {
				opts.output = "coder-support-" + time.Now().Format("20060102-150405") + ".zip"
			}
			if len(args) > 0 {
				opts.workspace = args[0]
			}
			if len(args) > 1 {
				opts.agent = args[1]
			}
			if len(opts.files) > 0 && opts.workspace == "" {
				return exit.Try(fault.New(fault.Invalid, "--workspace-file requires a workspace"),
					"coder support bundle WORKSPACE --workspace-file PATH")
			}
			return runBundle(cmd.Context(), g, opts, yes)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opts.output, "output-file", "O", "", "path of the new file (default coder-support-<time>.zip)")
	f.StringArrayVar(&opts.files, "workspace-file", nil,
		"file of the workspace to add, at most 10 MiB; can be given several times")
	f.BoolVar(&opts.profiles, "pprof", false,
		"add profiles of the server's process, which takes ten seconds; only for owners")
	f.StringVar(&opts.template, "template", "", "template to add, as NAME or ORGANIZATION/NAME")
	f.IntVar(&opts.workspaces, "workspaces-total-cap", 10,
		"how many workspaces to list; 0 for all that you may see, up to 1000")
	f.StringVar(&opts.url, "url-override", "", "URL at which to ask the server, such as that of one of several")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func runBundle(ctx context.Context, g *global.Flags, opts bundleOptions, yes bool) error {
	if !yes {
		ok, err := g.Streams().Confirm(ctx,
			"Collect diagnostics of this machine's network, the server and the workspace in "+opts.output+"?", true)
		if err != nil {
			return exit.Try(err, "coder support bundle --yes")
		}
		if !ok {
			return &exit.Error{Code: 1}
		}
	}
	if opts.url != "" {
		if err := override(ctx, g, opts.url); err != nil {
			return err
		}
	}
	b := &bundle{app: g, files: map[string][]byte{}, raw: map[string]bool{}}
	b.gather(ctx, opts)
	if err := b.write(opts.output); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Wrote %s with these files. Nothing was sent: review them before you share them.\n",
		opts.output)
	for _, name := range b.names() {
		fmt.Fprintf(g.Streams().Err, "  %-44s %7d bytes\n", name, len(b.files[name]))
	}
	return nil
}

// override makes the client of g ask another URL with the same session.
func override(ctx context.Context, g *global.Flags, text string) error {
	server, err := global.ParseURL(text)
	if err != nil {
		return err
	}
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	other, err := g.ClientFor(ctx, server, client.Token())
	if err != nil {
		return err
	}
	g.Use(other)
	return nil
}

// bundle is the content of a support bundle.
type bundle struct {
	app   *global.Flags
	files map[string][]byte
	size  int // bytes of what the server answered, at most maxBundle
	// raw are files in a compressed form in which nothing can be found or removed: profiles, which have no content of
	// the memory.
	raw map[string]bool
}

// add adds a value as JSON, or its error.
func (b *bundle) add(name string, value any, err error) {
	if err != nil {
		b.addError(name, err)
		return
	}
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && b.size+len(data) > maxBundle {
		err = fmt.Errorf("the answer of %d bytes was left out: the bundle would have more than %d MiB", len(data),
			maxBundle>>20)
	}
	if err != nil {
		b.addError(name, err)
		return
	}
	b.size += len(data)
	b.files[name+".json"] = append(data, '\n')
}

// addFile adds what the server sends, at most limit bytes of it.
func (b *bundle) addFile(
	ctx context.Context, name string, limit int, send func(context.Context, io.Writer) error,
) bool {
	limited, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	data := limitedBuffer{limit: min(limit, maxBundle-b.size)}
	if err := send(limited, &data); err != nil {
		if data.full {
			err = fmt.Errorf(
				"the file was left out: it has more than %d MiB, or the bundle would have more than %d MiB",
				limit>>20, maxBundle>>20)
		}
		b.addError(name, err)
		return false
	}
	b.size += len(data.data)
	b.files[name] = data.data
	return true
}

// limitedBuffer fails when it would have more bytes than its limit. It embeds no bytes.Buffer, whose ReadFrom knows no
// limit.
type limitedBuffer struct {
	data  []byte
	limit int
	full  bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > b.limit {
		b.full = true
		return 0, errors.New("too large")
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

func (b *bundle) addError(name string, err error) {
	text := err.Error()
	b.files[name+".error.txt"] = []byte(text[:min(len(text), maxError)] + "\n")
}

const (
	// supportTimeout bounds each of the server's answers.
	supportTimeout = 15 * time.Second
	// fileTimeout bounds one file of a workspace, and one profile, of which that of the processor takes ten seconds.
	fileTimeout = time.Minute
	// failedJobs is how many of the newest failed jobs of each organization a bundle lists.
	failedJobs = 50
	// maxThings is how many organizations, or agents, a bundle asks about.
	maxThings = 100
	// maxError bounds the text of one error, which a server may have written, in bytes.
	maxError = 4 << 10
	// maxBundle bounds what a bundle holds, in bytes before compression.
	maxBundle = 128 << 20
	// maxFile bounds one file of a workspace, and maxProfile one profile.
	maxFile    = 10 << 20
	maxProfile = 32 << 20
	// maxWorkspaces bounds the list of workspaces.
	maxWorkspaces = 1000
)

// ask adds the server's answer.
func ask[T any](ctx context.Context, b *bundle, name string, question func(context.Context) (T, error)) T {
	limited, cancel := context.WithTimeout(ctx, supportTimeout)
	defer cancel()
	answer, err := question(limited)
	b.add(name, answer, err)
	return answer
}

func (b *bundle) gather(ctx context.Context, opts bundleOptions) {
	b.add("program", map[string]any{
		"version": buildinfo.Version(), "revision": buildinfo.Revision(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		"time": time.Now(),
	}, nil)
	b.add("environment", environment(os.Environ()), nil)
	examined, cancel := context.WithTimeout(ctx, doctorTimeout)
	b.add("doctor", examine(examined, b.app), nil)
	cancel()
	client, err := b.app.Client(ctx)
	if err != nil {
		b.add("server/build", nil, err)
		return
	}
	ask(ctx, b, "network", func(ctx context.Context) (any, error) { return netcheck(ctx, b.app, client) })
	ask(ctx, b, "server/build", client.BuildInfo)
	ask(ctx, b, "server/health", client.Health)
	ask(ctx, b, "server/config", client.DeploymentConfig)
	ask(ctx, b, "server/stats", client.DeploymentStats)
	ask(ctx, b, "server/servers", client.Replicas)
	ask(ctx, b, "server/mesh", client.MeshPeers)
	ask(ctx, b, "server/workspaces", func(ctx context.Context) ([]sdk.Workspace, error) {
		return workspaces(ctx, client, opts.workspaces)
	})
	b.gatherOrganizations(ctx, client)
	if opts.profiles {
		b.gatherProfiles(ctx, client)
	}
	if opts.template != "" {
		b.gatherTemplate(ctx, client, opts.template)
	}
	if opts.workspace != "" {
		b.gatherWorkspace(ctx, client, opts)
	}
}

// workspaces lists the newest workspaces that the user sees, at most n.
func workspaces(ctx context.Context, client *sdk.Client, n int) ([]sdk.Workspace, error) {
	if n <= 0 || n > maxWorkspaces {
		n = maxWorkspaces
	}
	list := []sdk.Workspace{}
	for len(list) < n {
		page, err := client.Workspaces(ctx, sdk.WorkspacesQuery{Limit: min(n-len(list), 100), Offset: len(list)})
		if err != nil {
			return list, err
		}
		if len(page.Workspaces) == 0 {
			break
		}
		for _, ws := range page.Workspaces {
			list = append(list, withoutValues(ws))
		}
	}
	return list[:min(n, len(list))], nil
}

func (b *bundle) gatherWorkspace(ctx context.Context, client *sdk.Client, opts bundleOptions) {
	name, err := target.ParseName(opts.workspace)
	if err != nil {
		b.add("workspace/workspace", nil, err)
		return
	}
	ws := ask(ctx, b, "workspace/workspace", func(ctx context.Context) (sdk.Workspace, error) {
		ws, err := client.WorkspaceByName(ctx, name.Owner, name.Name)
		return withoutValues(ws), err
	})
	if ws.ID == uuid.Nil {
		return // the workspace does not exist
	}
	ask(ctx, b, "workspace/build-log",
		func(ctx context.Context) ([]sdk.JobLog, error) { return client.BuildLogs(ctx, ws.LatestBuild.ID, 0) })
	ask(ctx, b, "workspace/build-timings", func(ctx context.Context) (sdk.BuildTimings, error) {
		return client.BuildTimings(ctx, ws.LatestBuild.ID)
	})
	wanted := cmp.Or(opts.agent, name.Agent)
	agents := slices.DeleteFunc(ws.LatestBuild.Agents(), func(a sdk.WorkspaceAgent) bool {
		return wanted != "" && a.Name != wanted
	})
	if wanted != "" && len(agents) == 0 {
		b.addError("workspace/agent", fmt.Errorf("the workspace has no agent %.64q", wanted))
	}
	for i, agent := range bounded(agents) {
		ask(ctx, b, "workspace/agent-"+part(agent.Name, i)+"-log", func(ctx context.Context) ([]sdk.AgentLog, error) {
			return client.AgentLogs(ctx, agent.ID, 0)
		})
	}
	for i, file := range bounded(opts.files) {
		to := fmt.Sprintf("workspace/files/%d-%s", i+1, plainFile(file))
		if len(agents) == 0 {
			b.addError(to, errors.New("the workspace has no such agent"))
			continue
		}
		b.addFile(ctx, to, maxFile, func(ctx context.Context, w io.Writer) error {
			return client.AgentFile(ctx, agents[0].ID, file, w)
		})
	}
}

// gatherProfiles adds what the server's process spends its memory and its time on.
func (b *bundle) gatherProfiles(ctx context.Context, client *sdk.Client) {
	for _, name := range append([]string{sdk.CPUProfile}, sdk.Profiles...) {
		to := "server/pprof/" + name + ".pb.gz"
		b.raw[to] = b.addFile(ctx, to, maxProfile, func(ctx context.Context, w io.Writer) error {
			return client.Profile(ctx, name, w)
		})
	}
}

// gatherTemplate adds a template by its name, and its active version.
func (b *bundle) gatherTemplate(ctx context.Context, client *sdk.Client, name string) {
	org, rest, named := strings.Cut(name, "/")
	if !named {
		org, rest = "", name
	}
	in := organization.Of(org)
	t := ask(ctx, b, "template/template", func(ctx context.Context) (sdk.Template, error) {
		return in.Template(ctx, client, rest)
	})
	if t.ID == uuid.Nil {
		return
	}
	ask(ctx, b, "template/version", func(ctx context.Context) (sdk.TemplateVersion, error) {
		return client.TemplateVersion(ctx, t.ActiveVersionID)
	})
	ask(ctx, b, "template/version-log", func(ctx context.Context) ([]sdk.JobLog, error) {
		return client.TemplateVersionLogs(ctx, t.ActiveVersionID, 0)
	})
}

func (b *bundle) gatherOrganizations(ctx context.Context, client *sdk.Client) {
	for i, o := range bounded(ask(ctx, b, "server/organizations", client.Organizations)) {
		folder := "organization/" + part(o.Name, i) + "/"
		ask(ctx, b, folder+"provisioners", func(ctx context.Context) ([]sdk.ProvisionerDaemon, error) {
			return client.ProvisionerDaemons(ctx, o.ID.String())
		})
		ask(ctx, b, folder+"failed-jobs", func(ctx context.Context) ([]sdk.ProvisionerJob, error) {
			return client.ProvisionerJobs(ctx, o.ID.String(),
				sdk.JobsQuery{Limit: failedJobs, Statuses: []sdk.JobStatus{sdk.JobFailed}})
		})
	}
}

// bounded returns the first things of a server's list: a bundle asks for each of them.
func bounded[T any](list []T) []T { return list[:min(len(list), maxThings)] }

var plainName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// part returns a name that a server chose as a part of a file's name. A bundle unpacks into its own folder on every
// system, so a name with anything but letters, digits, - and _ becomes the thing's number.
func part(name string, number int) string {
	if plainName().MatchString(name) {
		return name
	}
	return fmt.Sprintf("number-%d", number+1)
}

// plainFile returns the last part of a path as a part of a file's name, which follows a number.
func plainFile(path string) string {
	base := path[strings.LastIndexAny(path, `/\`)+1:]
	plain := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, base[:min(len(base), 64)])
	return cmp.Or(strings.Trim(plain, "."), "file")
}

// withoutValues removes from a workspace what templates fill with secrets that have no form by which redact could find
// them: the values of its agents' environment, the text of scripts, and the commands and addresses of apps.
func withoutValues(ws sdk.Workspace) sdk.Workspace {
	for _, resource := range ws.LatestBuild.Resources {
		for _, agent := range resource.Agents {
			for name := range agent.EnvironmentVariables {
				agent.EnvironmentVariables[name] = redacted
			}
			for i := range agent.Scripts {
				agent.Scripts[i].Script = redacted
			}
			for i := range agent.Apps {
				agent.Apps[i].Command, agent.Apps[i].URL = redacted, redacted
			}
		}
	}
	return ws
}

// environment returns the variables that settings are read from, without secrets in their values.
func environment(all []string) map[string]string {
	kept := map[string]string{}
	for _, pair := range all {
		name, value, _ := strings.Cut(pair, "=")
		upper := strings.ToUpper(name)
		if !strings.HasPrefix(upper, "CODER_") && !slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "TERM", "SHELL"}, upper) {
			continue
		}
		if secretName().MatchString(upper) && value != "" {
			value = redacted
		}
		kept[name] = value
	}
	return kept
}

const redacted = "[taken out]"

var (
	secretName = lazyregexp.New(`(?i)(TOKEN|SECRET|PASSWORD|PASSWD|KEY|PSK|HEADER|PG_CONNECTION_URL|CREDENTIAL)`)
	// secretPatterns match secrets by their form, wherever they occur. The text in parentheses is kept.
	secretPatterns = []func() *regexp.Regexp{
		lazyregexp.New(`()\b[A-Za-z0-9]{10}-[A-Za-z0-9]{22}\b`),                                             // session tokens
		lazyregexp.New(`([a-z][a-z0-9+.-]*://)[^/\s:@"]*:[^/\s@"]*@`),                                       // user:password@ in URLs
		lazyregexp.New(`(?i)((?:token|secret|password|passwd|api_?key|psk)["']?\s*[:=]\s*["']?)[^\s"',}]+`), // assignments
		lazyregexp.New(`(?i)(bearer\s+)[A-Za-z0-9._~+/-]+=*`),
		lazyregexp.New(`()privkey:[0-9a-f]+`),
		lazyregexp.New(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`),
		lazyregexp.New(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----\\n.*?-----END [A-Z ]*PRIVATE KEY-----`), // in JSON
	}
)

// redact removes secrets: known ones by value, others by their form.
func redact(data []byte, known []string) []byte {
	for _, value := range known {
		if len(value) >= 8 { // shorter values are ordinary words
			data = bytes.ReplaceAll(data, []byte(value), []byte(redacted))
		}
	}
	for _, pattern := range secretPatterns {
		data = pattern().ReplaceAll(data, []byte("${1}"+redacted))
	}
	return data
}

// known returns the secrets that this program has.
func (b *bundle) known() []string {
	var values []string
	if token, err := b.app.SessionToken(); err == nil {
		values = append(values, token.Reveal())
	}
	for _, header := range b.app.Headers {
		if _, value, ok := strings.Cut(header, "="); ok {
			values = append(values, value)
		}
	}
	for _, pair := range os.Environ() {
		if name, value, ok := strings.Cut(pair, "="); ok && secretName().MatchString(name) {
			values = append(values, value)
		}
	}
	return values
}

func (b *bundle) names() []string { return slices.Sorted(maps.Keys(b.files)) }

// write creates the zip file, which only its owner can read.
func (b *bundle) write(file string) error {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	known := b.known()
	for _, name := range b.names() {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Now()})
		if err == nil {
			data := b.files[name]
			if !b.raw[name] {
				data = redact(data, known)
			}
			_, err = f.Write(data)
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return exit.Try(fault.New(fault.Conflict, "%s exists", file), "coder support bundle --output-file OTHER.zip")
	}
	if err != nil {
		return fault.New(fault.Invalid, "cannot create the bundle: %w", err)
	}
	_, err = out.Write(packed.Bytes())
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
