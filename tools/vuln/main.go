// Command vuln looks for known vulnerabilities in what the packages of a module call, with govulncheck's analysis. It
// takes them from the Go project's database in the version that go.mod pins, so that the same sources give the same
// result at every time and without a network.
//
//	vuln [-C folder] [-tags list] [-standard] package...
//
// It prints a line for each vulnerability, and exits with 1 if a package calls one of a module. Those of the standard
// library depend on the Go that is installed, not on the sources: they count with -standard only, which releases set.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/vuln/scan"
)

const databaseModule = "golang.org/x/vulndb"

func main() {
	folder := flag.String("C", ".", "folder of the module to check")
	tags := flag.String("tags", "", "build tags, separated by commas")
	standard := flag.Bool("standard", false, "fail for the standard library, too")
	flag.Parse()
	found, err := check(context.Background(), *folder, *tags, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
	if !report(os.Stdout, found, *standard) {
		os.Exit(1)
	}
}

// report prints what was found, and reports whether nothing counts.
func report(w io.Writer, found []finding, standard bool) bool {
	good := true
	older := 0
	for _, f := range found {
		if f.Module == "stdlib" && !standard {
			older++
			continue
		}
		good = false
		fmt.Fprintf(w, "%s: %s calls %s of %s %s", f.ID, f.Caller, f.Symbol, f.Module, f.Version)
		if f.Fixed != "" {
			fmt.Fprintf(w, "; %s is not affected", f.Fixed)
		}
		fmt.Fprintf(w, "\n  https://pkg.go.dev/vuln/%s\n", f.ID)
	}
	if older > 0 {
		fmt.Fprintf(w,
			"Known vulnerabilities in the standard library of the installed Go: %d. Releases are built with another, "+
				"see the Makefile.\n", older)
	}
	return good
}

// finding is a vulnerable symbol that a package calls.
type finding struct{ ID, Module, Version, Fixed, Symbol, Caller string }

// check returns one finding for each vulnerability.
func check(ctx context.Context, folder, tags string, packages []string) (found []finding, err error) {
	source, err := reports(ctx)
	if err != nil {
		return nil, err
	}
	database, err := os.MkdirTemp("", "vuln-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(database)) }()
	if err := write(database, source); err != nil {
		return nil, err
	}
	c := scan.Command(ctx, append([]string{"-C", folder, "-tags", tags, "-format", "json", "-db", "file://" + database},
		packages...)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := errors.Join(c.Start(), c.Wait()); err != nil {
		return nil, err
	}
	return parse(&out)
}

// message is the part that matters of what govulncheck writes with -format json. Its trace leads from the vulnerable
// symbol to its caller; the first element of one that no package calls has no function.
type message struct {
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Package  string `json:"package"`
			Receiver string `json:"receiver"`
			Function string `json:"function"`
			Position *struct {
				Filename string `json:"filename"`
				Line     int    `json:"line"`
			} `json:"position"`
		} `json:"trace"`
	} `json:"finding"`
}

// parse returns the first finding for each vulnerability that is called.
func parse(r io.Reader) ([]finding, error) {
	var found []finding
	for d := json.NewDecoder(r); ; {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read findings: %w", err)
		}
		f := m.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" ||
			slices.ContainsFunc(found, func(have finding) bool { return have.ID == f.OSV }) {
			continue
		}
		bad, caller := f.Trace[0], f.Trace[len(f.Trace)-1]
		symbol := bad.Package + "." + bad.Function
		if bad.Receiver != "" {
			symbol = bad.Package + "." + bad.Receiver + "." + bad.Function
		}
		where := caller.Package + "." + caller.Function
		if caller.Position != nil {
			where = fmt.Sprintf("%s:%d", caller.Position.Filename, caller.Position.Line)
		}
		found = append(found, finding{f.OSV, bad.Module, bad.Version, f.Fixed, symbol, where})
	}
}

// reports returns the folder of the pinned database's reports, in the OSV format. It downloads them first if they are
// missing.
func reports(ctx context.Context) (string, error) {
	c := exec.CommandContext(ctx, "go", "mod", "download", "-json", databaseModule)
	c.Stderr = os.Stderr
	out, err := c.Output()
	var module struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		return "", fmt.Errorf("download the database: %w %s", err, module.Error)
	}
	return filepath.Join(module.Dir, "data", "osv"), nil
}

// entry is the part of an OSV report that the index of a database repeats. The format is described at
// https://go.dev/doc/security/vuln/database.
type entry struct {
	ID        string     `json:"id"`
	Modified  time.Time  `json:"modified"`
	Withdrawn *time.Time `json:"withdrawn"`
	Affected  []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Ranges []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected"`
}

type (
	module struct {
		Path  string          `json:"path"`
		Vulns []vulnerability `json:"vulns"`
	}
	vulnerability struct {
		ID       string    `json:"id"`
		Modified time.Time `json:"modified"`
		Fixed    string    `json:"fixed,omitempty"`
	}
)

// write makes a database in dir from the reports in a folder.
func write(dir, source string) error {
	names, err := filepath.Glob(filepath.Join(source, "*.json"))
	if err != nil || len(names) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no reports", source))
	}
	for _, name := range []string{"ID", "index"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	modules := map[string]*module{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var r entry
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if r.Withdrawn != nil {
			continue
		}
		for _, affected := range r.Affected {
			m := modules[affected.Package.Name]
			if m == nil {
				m = &module{Path: affected.Package.Name}
				modules[m.Path] = m
			}
			v := vulnerability{ID: r.ID, Modified: r.Modified}
			for _, r := range affected.Ranges {
				for _, event := range r.Events {
					v.Fixed = cmp.Or(event.Fixed, v.Fixed)
				}
			}
			m.Vulns = append(m.Vulns, v)
		}
		var small bytes.Buffer
		if err := json.Compact(&small, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ID", filepath.Base(name)), small.Bytes(), 0o600); err != nil {
			return err
		}
	}
	list := make([]*module, 0, len(modules))
	for _, m := range modules {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *module) int { return cmp.Compare(a.Path, b.Path) })
	return errors.Join(
		writeJSON(filepath.Join(dir, "index", "modules.json"), list),
		writeJSON(filepath.Join(dir, "index", "db.json"), map[string]time.Time{"modified": time.Now()}))
}

func writeJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}
