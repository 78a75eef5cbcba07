// Command release assembles a release from built programs: archives, a bill of materials, release notes and signed
// checksums. Its output depends on its input alone: no time, no order of a file system, no name of a machine.
//
// It takes the folders of full and of slim programs, each named coder-<os>-<arch>, and the folder to write, which may
// already hold packages. With -programs DIR it writes the signed list of the slim programs, which the full ones embed.
// With -new-key FILE it makes a key.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "version of the release, such as 2.31.10001")
	flag.StringVar(&r.full, "full", "", "folder of full programs")
	flag.StringVar(&r.cli, "cli", "", "folder of slim programs")
	flag.StringVar(&r.out, "out", "", "folder to write")
	flag.StringVar(&r.root, "root", ".", "root of the repository")
	var o options
	flag.StringVar(&o.newKey, "new-key", "",
		"make a key: write the private key to this file, and the public key to FILE.pub")
	flag.StringVar(&o.programs, "programs", "", "write the signed list of the slim programs into this folder")
	flag.StringVar(&o.passwordFile, "password-file", "", "file whose first line is the password of the private key")
	flag.StringVar(&o.signature, "signature", "",
		"file with the signatures of the programs of a release to build again")
	flag.Func("key", "file with a private key that signs the release; while keys change, two", func(path string) error {
		o.keys = append(o.keys, path)
		return nil
	})
	flag.Parse()
	if err := o.do(&r); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options say what to do, and how to sign.
type options struct {
	newKey, programs, passwordFile, signature string
	keys                                      []string
}

func (o *options) do(r *release) error {
	if o.newKey != "" {
		return newKey(o.newKey, o.passwordFile)
	}
	if err := r.signer.load(r.root, o.passwordFile, o.signature, o.keys); err != nil {
		return err
	}
	if o.programs != "" {
		return r.programs(o.programs, programsName)
	}
	if err := r.run(); err != nil {
		return err
	}
	if !r.signer.signs() {
		fmt.Fprintln(os.Stderr,
			"The release is not signed. RELEASE_KEY names the file of the private key that signs it.")
	}
	return nil
}

// release is one run of this program.
type release struct {
	version, full, cli, out, root string
	// time is that of the commit, and stamps everything.
	time   time.Time
	signer signer
}

func (r *release) run() error {
	if r.version == "" || r.full == "" || r.cli == "" || r.out == "" {
		return errors.New("-version, -full, -cli and -out are required")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the time of the commit, in seconds: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	// The list of the programs is published too, so that others can build the release again.
	programs := func() error { return r.programs(r.out, "codermesh_"+r.version+"_programs") }
	for _, step := range []func() error{r.archives, r.billOfMaterials, r.notes, programs, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// program is one of the built programs.
type program struct {
	path string
	name string // of the archive, without its ending
	os   string
	full bool
}

// list finds the built programs.
func (r *release) list() ([]program, error) {
	var found []program
	for base, folder := range map[string]string{"codermesh": r.full, "codermesh-cli": r.cli} {
		paths, err := filepath.Glob(filepath.Join(folder, "coder-*"))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s has no programs: run make release", folder)
		}
		for _, path := range paths {
			platform := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "coder-"), ".exe")
			system, arch, ok := strings.Cut(platform, "-")
			if !ok {
				return nil, fmt.Errorf("%s is not named coder-<os>-<arch>", path)
			}
			name := fmt.Sprintf("%s_%s_%s_%s", base, r.version, system, arch)
			found = append(found, program{path: path, name: name, os: system, full: folder == r.full})
		}
	}
	slices.SortFunc(found, func(a, b program) int { return cmp.Compare(a.name, b.name) })
	return found, nil
}
