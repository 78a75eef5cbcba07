package main

import (
	"os"
	"strings"
	"testing"
)

func TestDashboardKnowsTheAPI(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(root string) ([]byte, error){
		"types.gen.ts": generate, "routes.gen.ts": generateRoutes,
	} {
		want, err := from("../..")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../site/src/api/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("site/src/api/%s differs from the server's source: run make gen", name)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	describe := func(operations string) string {
		t.Helper()
		root := t.TempDir()
		if err := os.MkdirAll(root+"/coderd/reference", 0o755); err != nil {
			t.Fatal(err)
		}
		text := []byte(`{"operations":{` + operations + `}}`)
		if err := os.WriteFile(root+"/coderd/reference/api.gen.json", text, 0o600); err != nil {
			t.Fatal(err)
		}
		return root
	}
	got, err := generateRoutes(describe(`
		"GET /healthz": {"responses": {"200": null}},
		"GET /api/v2/{$}": {},
		"GET /api/v2/events": {"query": ["after", "no-store"]},
		"POST /api/v2/files": {"request": {"type": "string", "format": "binary"},
			"responses": {"201": {"$ref": "#/components/schemas/File"}}},
		"PUT /api/v2/users/{user}": {"request": {"type": "object", "required": ["name"], "properties": {
			"name": {"type": "string"}, "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
			"responses": {"200": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
				"204": null, "303": null}},
		"DELETE /api/v2/users/{user}": {"responses": {
			"200": {"type": "object", "additionalProperties": {"type": "boolean"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(got), "export interface Routes {\n")
	const want = `  "DELETE users/{user}": { answer: Record<string, boolean> };
  "GET events": { query: { after?: Value; "no-store"?: Value }; answer: unknown };
  "POST files": { body: Blob; answer: t.File };
  "PUT users/{user}": { body: { age?: number | null; name: string }; answer: (string | null)[] | void };
}
`
	if rows != want {
		t.Errorf("got\n%s\nwant\n%s", rows, want)
	}
	for _, bad := range []string{
		`"GET /api/v2/odd": {"responses": {"200": {"type": "tuple"}}}`,
		`"GET /api/v2/odd/{body}": {"responses": {"200": null}}`,
	} {
		if _, err := generateRoutes(describe(bad)); err == nil {
			t.Errorf("no error for %s", bad)
		}
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
type Answers map[string]bool
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

export type Answers = Record<string, boolean>;
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	write("/internal/sdk/b.go", "package sdk\ntype Odd struct { C chan int `json:\"c\"` }\n")
	if _, err := generate(root); err == nil {
		t.Error("a type that has no TypeScript is left out in silence")
	}
}
