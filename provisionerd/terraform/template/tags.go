package template

import (
	"bytes"
	"fmt"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// NullTagsOutput begins the names of the outputs that list the tags without a value; the label of the data source
// follows. The provider leaves such tags out.
const NullTagsOutput = "zz_null_tags_"

// addNullTags adds the outputs of NullTagsOutput for the tags in the root module.
func (e Edited) addNullTags(files []syntax.Source) {
	var out bytes.Buffer
	for _, file := range files {
		for _, block := range file.Body.Blocks {
			tags := block.Body.Attributes["tags"]
			if !isCoderData(block) || block.Labels[0] != "coder_workspace_tags" || tags == nil ||
				readsInstance(block.Body) {
				continue
			}
			fmt.Fprintf(&out,
				"output %q {\n  sensitive = true\n  value = try([for k, v in (\n%s\n) : k if v == null], [])\n}\n",
				NullTagsOutput+block.Labels[1], tags.Expr.Range().SliceBytes(file.Text))
		}
	}
	if out.Len() > 0 {
		e["zz_tags.tf"] = out.Bytes()
	}
}

// Importable returns the files of the template as an import plans them: without the validation that it cannot satisfy,
// and with outputs that list the tags without a value.
func Importable(files []syntax.Source) Edited {
	ranges, _ := WithoutValidation(files)
	content := Edited{}
	for _, file := range files {
		if len(ranges[file.Name]) > 0 {
			content[file.Name] = Blank(file.Text, ranges[file.Name])
		}
	}
	content.addNullTags(files)
	return content
}
