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

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Source is a file of a module.
type Source struct {
	Name string
	Text []byte
	Body *hclsyntax.Body
}

// RootModule yields the .tf files in the top folder of a tar archive, which are Terraform's root module. It ends at the first error, which
// names the file. It skips JSON files.
func RootModule(archive []byte) iter.Seq2[Source, error] {
	return func(yield func(Source, error) bool) {
		var parser Parser
		for r := tar.NewReader(bytes.NewReader(archive)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Source{}, fmt.Errorf("read archive: %w", err))
				return
			}
			name := path.Clean(header.Name)
			if header.Typeflag != tar.TypeReg || strings.Contains(name, "/") || !strings.HasSuffix(name, ".tf") {
				continue
			}
			text, err := io.ReadAll(io.LimitReader(r, MaxFile+1)) // the parser refuses more
			if err != nil {
				yield(Source{}, fmt.Errorf("read %s: %w", name, err))
				return
			}
			file, diags := parser.Config(name, text)
			if diags.HasErrors() {
				yield(Source{}, fmt.Errorf("read %s: %w", name, diags))
				return
			}
			if !yield(Source{name, text, file.Body.(*hclsyntax.Body)}, nil) {
				return
			}
		}
	}
}
