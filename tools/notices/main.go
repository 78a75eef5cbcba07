// Command notices writes the licenses and notices of the third parties whose code the programs contain: the Go modules
// that are linked on any of the given platforms, Go's standard library, and the packages of the dashboard. Equal texts
// appear once, below the names of all that share them. Its output depends on its input alone. It fails if a module has
// no license file, or a package declares no license.
//
//	go run -C tools ./notices -root .. -platforms "linux-amd64 windows-amd64" -tags … -o NOTICES.txt ./cmd/coder ./cmd/coder-slim
//
// A name that ends in .gz is packed.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "root of the repository")
	platforms := flag.String("platforms", "",
		"platforms of the programs, such as linux-amd64, with blanks between them")
	tags := flag.String("tags", "", "build tags of the programs")
	out := flag.String("o", "", "file to write; may be given as NAME.gz")
	flag.Parse()
	if err := run(*root, strings.Fields(*platforms), *tags, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(root string, platforms []string, tags, out string, packages []string) error {
	if len(platforms) == 0 || out == "" || len(packages) == 0 {
		return errors.New("-platforms, -o and the packages of the programs are required")
	}
	var all []work
	for _, platform := range platforms {
		linked, err := modules(root, platform, tags, packages)
		if err != nil {
			return err
		}
		all = append(all, linked...)
	}
	shown, err := npm(filepath.Join(root, "site"))
	if err != nil {
		return err
	}
	text, err := render(append(all, shown...))
	if err != nil {
		return err
	}
	if strings.HasSuffix(out, ".gz") {
		if text, err = pack(text); err != nil {
			return err
		}
	}
	return os.WriteFile(out, text, 0o644)
}

// work is something of a third party: a module or a package.
type work struct {
	name string   // with its version
	dirs []string // where its licenses may be: its root, and folders below with code that is linked
	// declared says what it declares to be licensed under, for a package without a license file.
	declared string
}

// module is a module as go list prints it.
type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// modules returns the modules of the packages that are linked on a platform, and the standard library.
func modules(root, platform, tags string, packages []string) ([]work, error) {
	system, processor, _ := strings.Cut(platform, "-")
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module,Standard", "-tags", tags},
		packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system,
		"GOARCH="+strings.Replace(processor, "armv7", "arm", 1))
	cmd.Stderr = os.Stderr
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what is linked for %s: %w", platform, err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(goroot)), "\n")
	found := []work{{name: "Go's standard library " + strings.TrimPrefix(version, "go"), dirs: []string{dir}}}
	at := map[string]int{}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); decoder.More(); {
		var p struct {
			Dir      string
			Standard bool
			Module   *module
		}
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read what is linked for %s: %w", platform, err)
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		m := p.Module
		if m.Replace != nil {
			m = m.Replace
		}
		name := m.Path + " " + m.Version
		if _, ok := at[name]; !ok {
			at[name] = len(found)
			found = append(found, work{name: name, dirs: []string{m.Dir}})
		}
		// A module may contain what others wrote, with a license in that folder.
		for dir := p.Dir; len(dir) > len(m.Dir); dir = filepath.Dir(dir) {
			found[at[name]].dirs = append(found[at[name]].dirs, dir)
		}
	}
	return found, nil
}

// npm returns the packages that the dashboard contains; those of its build are left out.
func npm(site string) ([]work, error) {
	data, err := os.ReadFile(filepath.Join(site, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev, Optional    bool
		}
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("read the dashboard's packages: %w", err)
	}
	if _, err := os.Stat(filepath.Join(site, "node_modules")); errors.Is(err, os.ErrNotExist) {
		return nil, nil // a build without npm has no dashboard
	}
	var found []work
	for dir, p := range lock.Packages {
		i := strings.LastIndex(dir, "node_modules/")
		if i < 0 || p.Dev {
			continue
		}
		full := filepath.Join(site, filepath.FromSlash(dir))
		if _, err := os.Stat(full); errors.Is(err, os.ErrNotExist) && p.Optional {
			continue // for another platform
		}
		w := work{name: dir[i+len("node_modules/"):] + " " + p.Version, dirs: []string{full}}
		if p.License != "" {
			w.declared = "The package has no license file. It declares the license " + p.License + "."
		}
		found = append(found, w)
	}
	return found, nil
}

var isLicense = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([-.].*)?$`)

// licenses returns the texts of a folder's licenses.
func licenses(dir string) (texts []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !isLicense.MatchString(entry.Name()) || path.Ext(entry.Name()) == ".go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		text := strings.ReplaceAll(strings.ToValidUTF8(string(data), "?"), "\r\n", "\n")
		if text = strings.Trim(text, "\n"); text != "" {
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// render writes the texts in the order of the first name of each.
func render(all []work) ([]byte, error) {
	names := map[string][]string{} // by text
	for _, w := range all {
		known := false
		for _, dir := range slices.Compact(slices.Sorted(slices.Values(w.dirs))) {
			texts, err := licenses(dir)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			for _, text := range texts {
				known = true
				if !slices.Contains(names[text], w.name) {
					names[text] = append(names[text], w.name)
				}
			}
		}
		switch {
		case known:
		case w.declared == "":
			return nil, fmt.Errorf("%s has no license file", w.name)
		case !slices.Contains(names[w.declared], w.name):
			names[w.declared] = append(names[w.declared], w.name)
		}
	}
	type entry struct{ heading, text string }
	var entries []entry
	for text, of := range names {
		slices.Sort(of)
		entries = append(entries, entry{strings.Join(of, "\n"), text})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.heading, b.heading), cmp.Compare(a.text, b.text))
	})
	var page bytes.Buffer
	page.WriteString("codermesh contains the following software of others. Each text holds for what is named above " +
		"it.\n")
	for _, e := range entries {
		fmt.Fprintf(&page, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), e.heading, e.text)
	}
	return page.Bytes(), nil
}

func pack(text []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return packed.Bytes(), err
}
