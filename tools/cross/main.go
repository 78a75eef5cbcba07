// Command cross checks that packages of a module compile for other systems.
//
//	cross [-C folder] [-tags list] [-tests] -target system-processor... package...
//
// It checks the types of the packages, and of those that they need of their module, from their source. Of other modules
// it reads only what is exported. A build would find the same mistakes in Go code, and takes minutes for each system,
// because it compiles all that the program is made of. It finds no mistakes in assembly, and does not link. With -tests
// it checks the named packages with their tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "C", ".", "folder of the module")
	flag.StringVar(&o.tags, "tags", "", "build tags")
	flag.BoolVar(&o.tests, "tests", false, "check the named packages with their tests")
	flag.Func("target", "system and processor to check, such as windows-arm64; may be repeated",
		func(target string) error {
			o.targets = append(o.targets, target)
			return nil
		})
	flag.Parse()
	if err := o.run(context.Background(), os.Stdout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cross:", err)
		os.Exit(1)
	}
}

type options struct {
	dir     string
	tags    string
	tests   bool
	targets []string
}

// run checks the packages for each target, and writes what would not compile.
func (o options) run(ctx context.Context, w io.Writer, patterns []string) error {
	if len(o.targets) == 0 || len(patterns) == 0 {
		return errors.New("name a target, such as -target windows-amd64, and a package, such as ./cmd/coder")
	}
	failed := false
	for _, target := range o.targets {
		count, problems, err := o.check(ctx, target, patterns)
		if err != nil {
			return fmt.Errorf("check for %s: %w", target, err)
		}
		fmt.Fprintf(w, "%s: packages that compile: %d, mistakes: %d\n", target, count, len(problems))
		for _, p := range problems {
			fmt.Fprintf(w, "\t%s\n", p)
		}
		failed = failed || len(problems) > 0
	}
	if failed {
		return errors.New("some packages do not compile")
	}
	return nil
}

// check returns how many packages of the module compile for a target, and what is wrong with the others.
func (o options) check(
	ctx context.Context, target string, patterns []string,
) (count int, problems []string, err error) {
	system, processor, ok := strings.Cut(target, "-")
	if !ok {
		return 0, nil, errors.New(`a target looks like "windows-amd64"`)
	}
	config := packages.Config{
		Context: ctx, Dir: o.dir, BuildFlags: []string{"-tags=" + o.tags},
		Env:  append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedModule,
	}
	named, err := packages.Load(&config, patterns...)
	if err != nil {
		return 0, nil, err
	}
	var own []string
	packages.Visit(named, nil, func(p *packages.Package) {
		if p.Module != nil && p.Module.Main {
			own = append(own, p.PkgPath)
		}
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
	})
	if len(problems) > 0 { // a package or a file is missing, and others cannot be checked without it
		return 0, problems, nil
	}
	if len(own) == 0 {
		return 0, nil, fmt.Errorf("%s names no package of the module", strings.Join(patterns, " "))
	}
	// Packages that are named have their functions checked; the others only what they export.
	config.Mode |= packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes
	if o.tests {
		config.Tests, own = true, patterns
	}
	checked, err := packages.Load(&config, own...)
	if err != nil {
		return 0, nil, err
	}
	for _, p := range checked {
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
		if len(p.Errors) == 0 {
			count++
		}
	}
	return count, problems, nil
}
