// Package starters contains the starter templates that come with the program.
package starters

import (
	"embed"
	"io/fs"
	"slices"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/readme"
)

//go:embed aws-linux aws-windows azure-linux azure-windows devcontainer dind docker docker-compose external gcp-linux
//go:embed gcp-windows gpu jupyterlab kubernetes process vscode vscode-web
var content embed.FS

// Starter describes one starter template.
type Starter struct {
	Name        string // also its folder
	DisplayName string
	Description string // one sentence
	Icon        string // a path on the server
	Tags        []string
}

// all are the starters, sorted by name. Each describes its template in the front matter of its README, which a template
// made of it keeps.
var all = sync.OnceValue(func() []Starter {
	entries, err := content.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	list := make([]Starter, 0, len(entries))
	for _, entry := range entries {
		text, err := content.ReadFile(entry.Name() + "/README.md")
		if err != nil {
			panic(err)
		}
		m, _ := readme.Parse(string(text))
		list = append(list, Starter{
			Name: entry.Name(), DisplayName: m.DisplayName, Description: m.Description, Icon: m.Icon, Tags: m.Tags,
		})
	}
	return list
})

// List returns the starters, sorted by name.
func List() []Starter { return slices.Clone(all()) }

// Get returns the files and the description of a starter, or false if there is none with that name.
func Get(name string) (fs.FS, Starter, bool) {
	i := slices.IndexFunc(all(), func(s Starter) bool { return s.Name == name })
	if i < 0 {
		return nil, Starter{}, false
	}
	files, err := fs.Sub(content, name)
	if err != nil {
		panic(err) // its name is a valid path
	}
	return files, all()[i], true
}
