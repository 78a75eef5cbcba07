package main

import (
	"os"
	"strings"
	"testing"
)

func TestDashboardKnowsTheAPI(t *testing.T) {
	t.Parallel()
	want, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../site/src/api/types.gen.ts")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("site/src/api/types.gen.ts differs from the server's types: run make gen")
	}
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(root+path[:strings.LastIndex(path, "/")], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("/internal/sdk/a.go", `package sdk
// Colour is one.
type Colour string
const (
	Red Colour = "red"
	Blue Colour = "blue"
)
type Base struct { ID uuid.UUID `+"`json:\"id\"`"+` }
// Thing is
// a thing.
type Thing struct {
	Base
	Colours List[Colour] `+"`json:\"colours,omitempty\"`"+` // seen
	At *time.Time `+"`json:\"at\"`"+`
	Times []*time.Time `+"`json:\"times\"`"+`
	By Map[List[int]] `+"`json:\"by,omitzero\"`"+`
	State []byte `+"`json:\"state\"`"+`
	Skipped string `+"`json:\"-\"`"+`
	hidden int
}
type NotOnTheWire struct{ A int }
`)
	got, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(got), "\n")
	const want = `
// Colour is one.
export type Colour = "red" | "blue";

export interface Base {
  id: string;
}

// Thing is
// a thing.
export interface Thing extends Base {
  colours?: Colour[]; // seen
  at: string | null;
  times: (string | null)[];
  by?: Record<string, number[]>;
  state: string;
}
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	write("/internal/sdk/b.go", "package sdk\ntype Odd struct { C chan int `json:\"c\"` }\n")
	if _, err := generate(root); err == nil {
		t.Error("a type that has no TypeScript is left out in silence")
	}
}
