package layout_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floors are the files of the packages that are too large to be read in one sitting, from the ground up: a file should use
// only those before it. upward counts the pairs of files that do not keep to that. A change may lower it, and may move a
// file; it does not raise it.
var floors = []struct {
	dir    string
	upward int
	files  string
}{
	{"coordinator", 20, `
		timers server session drain table authorize replica restore duplicate inspect holepunch join dialer
		presence
	`},
	{"coordinator/client", 2, "client bounds receive run dialserver"},
	{"coordinator/peering", 1, "outbox probe link"},
	{"coordinator/protocol", 1, "conn hello protocol link pipe"},
	{"provisionerd/terraform", 1, `
		mirrorproxy extract registries share phases cliconfig vendored cache runner jobtime plan replace
		import rehearse build terraform recover evaluate
	`},
	{"provisionerd/terraform/host", 4, `
		env host_unix dirs program visible accounts isolation joblimits cgroup_linux notes keepagents jobfile
		gate request look gate_linux namespaces gate_unix rundir host grant jobfiles etc follow_linux left
		spaces process confine worker slot limits defaultlimits follow
	`},
	{"provisionerd/terraform/result", 3, `
		marks log error state diagnostic instances resources tags params removed agents plan support output changes
		folder lost watch apps rehearsal presets changeplan
	`},
	{"agent", 0, `
		options uplink blocking reports apphealth monitors state localconns stats socket pulse
		gitkey logins archives sweep system_unix devcontainer workspace devcontainers lifecycle schedule api daemon
		metadata terminals ssh visas manifest rpc mesh run agent
	`},
}

func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	for _, room := range floors {
		t.Run(room.dir, func(t *testing.T) {
			t.Parallel()
			floor := map[string]int{}
			for i, name := range strings.Fields(room.files) {
				floor[name+".go"] = i + 1
			}
			var up []string
			for a := range arrows(t, room.dir) {
				for _, name := range []string{a.from, a.to} {
					if floor[name] == 0 {
						t.Fatalf("%s/%s has no place in floors: put it above the files that it uses", room.dir, name)
					}
				}
				if floor[a.from] < floor[a.to] {
					up = append(up, a.from+" uses "+a.to)
				}
			}
			slices.Sort(up)
			switch list := strings.Join(up, "\n"); {
			case len(up) > room.upward:
				t.Errorf("%d arrows point up, at most %d may: move what the lower file needs down, or pass it in\n%s", len(up), room.upward, list)
			case len(up) < room.upward:
				t.Errorf("only %d arrows point up: keep it so, and write %d into floors", len(up), len(up))
			}
		})
	}
}

// arrow says that a file of a package uses what another one of it declares.
type arrow struct{ from, to string }

// arrows returns the arrows between the files of a package, below the root of the module, without its tests.
func arrows(t *testing.T, dir string) map[arrow]struct{} {
	t.Helper()
	exports := map[string]string{}
	var names []string
	for _, p := range list(t, "-export", "-deps", "./"+dir) {
		exports[p.ImportPath] = p.Export
		if p.ImportPath == module+"/"+dir {
			names = p.GoFiles
		}
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(set, filepath.Join("../..", dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	imported := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	uses := map[*ast.Ident]types.Object{}
	p, err := (&types.Config{Importer: imported}).Check(module+"/"+dir, set, files, &types.Info{Uses: uses})
	if err != nil {
		t.Fatal(err)
	}
	found := map[arrow]struct{}{}
	for name, object := range uses {
		if object.Pkg() != p {
			continue
		}
		a := arrow{filepath.Base(set.Position(name.Pos()).Filename), filepath.Base(set.Position(object.Pos()).Filename)}
		if a.from != a.to {
			found[a] = struct{}{}
		}
	}
	return found
}
