// Command mutate shows which small faults the tests of a package do not notice.
//
//	mutate [-C folder] [-n 5] [-seed 1] [-tags list] [-timeout 150s] package...
//
// It picks n places in each package, by seed: a comparison, a logical or arithmetic operator, a number, true or false,
// break or continue, a negation. It changes one at a time, without touching the files (go build's -overlay), and runs
// the package's own tests. A change is noticed if they fail, or do not end in time; a change that does not compile is
// replaced by another. The others are printed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "C", ".", "folder of the module")
	flag.IntVar(&o.count, "n", 5, "how many places to change in each package")
	flag.Uint64Var(&o.seed, "seed", 1, "seed that picks the places")
	flag.StringVar(&o.tags, "tags", "", "build tags")
	flag.DurationVar(&o.timeout, "timeout", 150*time.Second, "how long one run of a package's tests may take")
	flag.Parse()
	if err := o.run(context.Background(), os.Stdout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	dir     string
	count   int
	seed    uint64
	tags    string
	timeout time.Duration
}

// run mutates packages, and writes what their tests did not notice.
func (o options) run(ctx context.Context, w io.Writer, patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("name a package, such as ./coderd/rbac")
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	packages, err := o.list(ctx, patterns)
	if err != nil {
		return err
	}
	var noticed, tried int
	for _, p := range packages {
		got, of, err := o.mutate(ctx, w, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		fmt.Fprintf(w, "%s: %d of %d noticed\n", p.ImportPath, got, of)
		noticed, tried = noticed+got, tried+of
	}
	if len(packages) > 1 {
		fmt.Fprintf(w, "%d of %d noticed (%d %%)\n", noticed, tried, 100*noticed/max(1, tried))
	}
	return nil
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
}

func (o options) list(ctx context.Context, patterns []string) (packages []pkg, err error) {
	out, err := o.command(ctx, append([]string{"list", "-json=ImportPath,Dir,GoFiles", "-tags", o.tags},
		patterns...)...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); err == nil; {
		var p pkg
		if err = decoder.Decode(&p); err == nil {
			packages = append(packages, p)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return packages, nil
}

// mutate tries o.count changes of a package.
func (o options) mutate(ctx context.Context, w io.Writer, p pkg) (noticed, tried int, err error) {
	var places []change
	for _, name := range p.GoFiles {
		found, err := changes(filepath.Join(p.Dir, name))
		if err != nil {
			return 0, 0, err
		}
		places = append(places, found...)
	}
	rand.New(rand.NewPCG(o.seed, 0)).
		Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	if out, err := o.test(ctx, p, "").CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("the tests fail without a change: %w\n%s", err, out)
	}
	for _, c := range places {
		if tried == o.count {
			break
		}
		verdict, err := o.try(ctx, p, c)
		switch {
		case err != nil:
			return noticed, tried, err
		case verdict == broken:
			continue
		case verdict == seen:
			noticed++
		default:
			file, err := filepath.Rel(o.dir, c.file)
			if err != nil {
				file = c.file
			}
			fmt.Fprintf(w, "%s:%d: not noticed: %q instead of %q in %s\n", file, c.line, c.with, c.old, c.context)
		}
		tried++
	}
	return noticed, tried, nil
}

type verdict int

const (
	unseen verdict = iota
	seen
	broken // it does not compile
)

// try runs a package's tests with a change.
func (o options) try(ctx context.Context, p pkg, c change) (verdict, error) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return unseen, err
	}
	defer os.RemoveAll(dir)
	changed, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{c.file: changed}})
	if err == nil {
		err = errors.Join(os.WriteFile(changed, c.text, 0o600), os.WriteFile(overlay, text, 0o600))
	}
	if err != nil {
		return unseen, err
	}
	if o.command(ctx, "build", "-tags", o.tags, "-overlay", overlay, p.ImportPath).Run() != nil {
		return broken, ctx.Err()
	}
	if o.test(ctx, p, overlay).Run() != nil {
		return seen, ctx.Err()
	}
	return unseen, nil
}

// test is the command that runs a package's tests.
func (o options) test(ctx context.Context, p pkg, overlay string) *exec.Cmd {
	return o.command(ctx, "test", "-vet=off", "-count=1", "-failfast", "-timeout", o.timeout.String(), "-tags", o.tags,
		"-overlay", overlay, p.ImportPath)
}

func (o options) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.dir
	return cmd
}
