package syntax

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Source is a file of a module.
type Source struct {
	Name string
	Text []byte
	Body *hclsyntax.Body
}

// RootModule yields the .tf files in the top folder of a tar archive, which are Terraform's root module. It ends at the
// first error, which names the file. It skips JSON files.
func RootModule(archive []byte) iter.Seq2[Source, error] {
	return func(yield func(Source, error) bool) {
		for file, err := range rootFiles(archive, ".tf") {
			source := Source{Name: file.name, Text: file.text}
			if err == nil {
				source.Body = file.body.(*hclsyntax.Body)
			}
			if !yield(source, err) {
				return
			}
		}
	}
}

// RootJSON yields the contents of the .tf.json files beside those of RootModule.
func RootJSON(archive []byte) iter.Seq2[hcl.Body, error] {
	return func(yield func(hcl.Body, error) bool) {
		for file, err := range rootFiles(archive, ".tf.json") {
			if !yield(file.body, err) {
				return
			}
		}
	}
}

// Overrides reports whether Terraform merges a file over the others of its module.
func Overrides(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".json"), ".tf")
	return name == "override" || strings.HasSuffix(name, "_override")
}

type rootFile struct {
	name string
	text []byte
	body hcl.Body
}

// rootFiles yields the parsed files in the top folder of an archive whose names end with suffix.
func rootFiles(archive []byte, suffix string) iter.Seq2[rootFile, error] {
	return func(yield func(rootFile, error) bool) {
		var parser Parser
		for r := tar.NewReader(bytes.NewReader(archive)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(rootFile{}, fmt.Errorf("read archive: %w", err))
				return
			}
			name := path.Clean(header.Name)
			if header.Typeflag != tar.TypeReg || strings.Contains(name, "/") || !strings.HasSuffix(name, suffix) {
				continue
			}
			text, err := io.ReadAll(io.LimitReader(r, MaxFile+1)) // the parser refuses more
			if err != nil {
				yield(rootFile{}, fmt.Errorf("read %s: %w", name, err))
				return
			}
			file, diags := parser.File(name, text)
			if diags.HasErrors() {
				yield(rootFile{}, fmt.Errorf("read %s: %w", name, diags))
				return
			}
			if !yield(rootFile{name, text, file.Body}, nil) {
				return
			}
		}
	}
}
