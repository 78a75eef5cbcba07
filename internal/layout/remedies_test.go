package layout

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// remedies are all that servers, provisioners, agents and regions suggest to people and that stops, restarts, replaces or
// removes something, with what proves their cause. A new one must be added with its proof: a network that fails must
// never suggest to end work that goes on. TestRemediesHaveProof of cmd/coder/cli has those of the command line; a gap
// stands for what is not constant.
var remedies = map[string]string{
	// Of workspaces and their agents.
	"Restart the workspace.":                                  "the agent has reported that it ends, and is not connected",
	"Restart the workspace to update it.":                     "the agent answered that it does not know the request",
	"Stop one of them.":                                       "two processes showed the token, and the first one answered when the second one came",
	"Recreate it on the workspace's page.":                    "the agent has reported that the container is stopped",
	"Read its log on the workspace's page, then recreate it.": "the agent has reported why the container failed",
	"Read the startup log, correct the script or its parameters in the template, and restart the workspace.": "" +
		"the agent has reported that a script failed",
	"If only its network has failed, what runs there goes on, and it reconnects on its own. Check that its machine runs " +
		"and can reach … before you restart the workspace, which ends what runs there.": "" +
		"not known: it says so, what to check first, and what a restart costs",
	"Restart the workspace to make a new one.": "the token in the workspace's state was read, and is not the agent's",
	"Two machines or processes run the same agent, such as a copy of the workspace. Stop one of them. This one tries " +
		"again in a while.": "the other one answered a ping just now",
	"Replace it, or choose another name.": "the agent has found the file",

	// Of builds and jobs.
	"The job goes on there if only its network has failed, and fails after %s unless the provisioner comes back. If its " +
		"machine is gone for good, cancel the job to end it now.": "" +
		"not known: it names the cause that only a person can know",
	"Start … with …, or cancel the job and choose other tags.":       "the job has not begun",
	"Build %d (%s) is %s. Wait until it has finished, or cancel it.": "the row of the build was read",
	"Wait until it has finished, or cancel it.":                      "the row of the build was read",
	"Try again when it has finished, or cancel it.":                  "the row of the import was read",
	"With it, builds would change and delete the %d resources of that state, which another workspace may use, and forget " +
		"the %d resources of this workspace, which stay behind. To use it nevertheless, add --force.": "" +
		"both states were read; it says what --force costs",
	"With it, builds would forget what was created since. To use it nevertheless, add --force.": "" +
		"both states were read; it says what --force costs",

	// Of limits, which were counted in the database, and of what is in use there.
	"Stop or delete another workspace, or ask an administrator for a higher quota.":          "the quota was counted",
	"Delete another workspace of the new owner, or ask an administrator for a higher quota.": "the quota was counted",
	"Delete what they own first. Its data will be lost.":                                     "it was counted",
	"Delete them first. Their data will be lost.":                                            "they were counted",
	"Delete these first.":                              "they were listed",
	"Delete some first.":                               "they were counted",
	"Stop sharing one of them first.":                  "they were counted",
	"Remove one first with: coder devices remove NAME": "they were counted",
	"Remove one first with: coder ssh-key remove NAME": "they were counted",
	"Remove one that is not needed.":                   "they were counted",
	"Stop some of these programs.":                     "their streams were counted",
	"Remove what is not part of the template, such as .terraform, binaries and state.":      "the upload was measured",
	"Ask an owner of this deployment to delete that account first.":                         "the account was read",
	"Ask an owner of this deployment: they can delete that account, or change its address.": "the account was read",
	"If you did not get it, delete it and create another.":                                  "the first request created it",
	"Start it, or set autostop for later starts: coder schedule stop %s 8h":                 "sets a time",
	"Choose another name, or remove the file first.":                                        "the file is there",

	// Of keys, which were tried.
	"Remove it, and add it again.": "none of the server's keys decrypts it",
	"They are unchanged and named above. Replace or delete them, or keep the old keys.":  "none of the server's keys decrypts them",
	"Give all servers the same keys with --state-encryption-key-file, and restart them.": "this server's keys do not decrypt it",
	"Give all servers the same keys with --state-encryption-key-file, and restart them. If the key is lost, make new ones with: coder identity rotate --all": "" +
		"this server's keys do not decrypt it",
	"Restart this server to use that key.": "the key in its file is not the one that it uses",
	"Give it to the server beside the others, with --state-encryption-key-file, and restart it. If the key is lost, give the workspace a state with coder state push, or delete the workspace with --orphan. The state itself is unchanged.": "" +
		"the state names the key; that it is lost only a person can know",
	"It has %s. Add the missing ones: the file of --state-encryption-key-file can contain several. If they are lost for good, run: coder server keys forget %s. Nothing was changed.": "" +
		"the database names the keys; that they are lost only a person can know",
	"Make %s the first key of every server and restart them, then rotate. Nothing was changed.":                                                  "the servers' rows name other keys",
	"Give the server the missing key with --state-encryption-key-file. Without it, a user's key for git is replaced by: coder publickey --reset": "this server's keys do not decrypt it",

	// Of servers and their machines.
	"If it has lost its disk, restart the workspace %s/%s.":                                                   "that it is lost only a person can know",
	"Restart the server to unpack its binaries again.":                                                        "the system said that the file does not exist",
	"Remove it: the next start of the server sets a new one.":                                                 "the file was read and has no password",
	"Stop it with: kill -QUIT %d":                                                                             "the process holds the folder, and has ignored two signals",
	"Stop it, or give this one its own folder with --global-config.":                                          "another process holds the lock",
	"Stop it, or give this one its own configuration folder with --global-config.":                            "another process holds the lock",
	"Stop that program, or choose another address with %s.":                                                   "the system said that the address is in use",
	"Its version cannot run beside others. Stop it first, or give this server its own database.":              "the other server holds a lock of the database",
	"Upgrade it to a release between the two, or stop all servers of its release. Then start this one again.": "the other server's row names its release",
	"Upgrade through a release that understands both, or stop all servers first.":                             "the other server's row names its release",
	"Stop all servers of the database first. Nothing was changed.":                                            "servers hold locks of the database",
	"Use an empty database, or replace the data with --overwrite. Nothing was changed.":                       "the database has tables",
	"Install bubblewrap on the server's machine and restart the server. See docs/provisioners.md.":            "the server has tried to confine a process",
	"Free space on PostgreSQL's disk, or find out why it refuses writes. Until then nothing can be built or changed. The server recovers without a restart.": "" +
		"suggests no restart",
	"Start them again, and check that they reach the server and that the server reaches their access URLs. Any that you have taken down for good is listed until you delete it: coder wsproxy delete NAME.": "" +
		"that one was taken down only a person can know",
	"Remove files that are no longer needed, or raise the quota.": "the system said that the quota is used up",
	"Remove files that are no longer needed, however small. %s":   "the file system has no inode left",
	"Remove files that are no longer needed, or enlarge it.":      "the file system has no byte left",
	"Remove files that are no longer needed. %s":                  "the file system has no byte left",
}

var drastic = regexp.MustCompile(`(?i)\b(stop|delete|restart|recreate|remove|rm|rebuild|kill|reset|forget|replace|` +
	`overwrite|discard|prune|cancel|force|reboot|revoke|rotate|terminate)\b`)

// TestRemediesHaveProof lists the details of errors, the remedies of findings and of what waits, that end or remove
// something.
func TestRemediesHaveProof(t *testing.T) {
	t.Parallel()
	const root = "../.."
	found := map[string]bool{}
	for _, dir := range []string{"agent", "appproxy", "cmd", "coderd", "coordinator", "internal", "meshclient", "provisionerd",
		"region", "sshmux", "tailnet"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, e := range remediesIn(n) {
					text := constantText(e)
					if !drastic.MatchString(text) {
						continue
					}
					if found[text] = true; remedies[text] == "" {
						t.Errorf("%s: %q ends or removes something: add what proves its cause to remedies",
							files.Position(e.Pos()), text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for text := range remedies {
		if !found[text] {
			t.Errorf("nothing suggests %q any more", text)
		}
	}
}

// remediesIn returns the expressions of a node that tell people what to do: the argument of WithDetail, what health
// findings end with, what is called a remedy, and what a function returns whose name says so.
func remediesIn(n ast.Node) (all []ast.Expr) {
	named := func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name
		case *ast.SelectorExpr:
			return e.Sel.Name
		}
		return ""
	}
	isRemedy := func(name string) bool { return strings.Contains(strings.ToLower(name), "remedy") || name == "Detail" }
	switch n := n.(type) {
	case *ast.CallExpr:
		switch name := named(n.Fun); {
		case name == "WithDetail" && len(n.Args) > 0:
			all = append(all, n.Args[0])
		case name == "bad" && len(n.Args) > 0: // of coderd/health
			all = append(all, n.Args[len(n.Args)-1])
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if i < len(n.Rhs) && isRemedy(named(left)) {
				all = append(all, n.Rhs[i])
			}
		}
	case *ast.KeyValueExpr:
		if isRemedy(named(n.Key)) {
			all = append(all, n.Value)
		}
	case *ast.FuncDecl:
		if n.Body == nil || !isRemedy(n.Name.Name) {
			break
		}
		ast.Inspect(n.Body, func(m ast.Node) bool {
			if r, ok := m.(*ast.ReturnStmt); ok {
				all = append(all, r.Results...)
			}
			return true
		})
	}
	return slices.DeleteFunc(all, func(e ast.Expr) bool { return e == nil })
}

// constantText returns the text of an expression, with a gap for each part that is not constant. Of a call, such as
// fmt.Sprintf, it is the first argument.
func constantText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0))
		}
	case *ast.BinaryExpr:
		return constantText(e.X) + constantText(e.Y)
	case *ast.ParenExpr:
		return constantText(e.X)
	case *ast.CallExpr:
		if len(e.Args) > 0 {
			return constantText(e.Args[0])
		}
	}
	return "…"
}
