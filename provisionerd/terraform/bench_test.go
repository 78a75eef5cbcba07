package terraform_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// BenchmarkStart measures one start of a small workspace, including everything except the queue.
func BenchmarkStart(b *testing.B) {
	e := newExecutor(b)
	template := files(twoHomes)
	for b.Loop() {
		j := newTrial(b, template)
		ok(b, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	}
}

// BenchmarkImport measures one import of a small template that is in the cache.
func BenchmarkImport(b *testing.B) {
	e := newExecutor(b)
	template := files(twoHomes)
	for b.Loop() {
		j := newTrial(b, template)
		if result := j.importIt(e, &provisionerpb.TemplateImport{}); result.GetError() != "" {
			b.Fatal(result.GetError())
		}
	}
}
