// Package starters contains the starter templates that come with the program.
package starters

import (
	"embed"
	"io/fs"
	"slices"
)

//go:embed devcontainer docker external kubernetes process
var content embed.FS

// Starter describes one starter template.
type Starter struct {
	Name        string // also its folder
	DisplayName string
	Description string // one sentence
	Icon        string // a path on the server
	Tags        []string
}

var all = []Starter{
	{
		Name: "devcontainer", DisplayName: "Dev containers", Icon: "/icon/devcontainer.svg",
		Tags: []string{"docker", "container", "devcontainer"},
		Description: "Runs the dev container that a Git repository's devcontainer.json describes, on the " +
			"provisioner's Docker host.",
	},
	{
		Name: "docker", DisplayName: "Docker containers", Icon: "/icon/docker.svg",
		Tags:        []string{"docker", "container"},
		Description: "Runs workspaces as containers on the provisioner's host. Home folders are kept between restarts.",
	},
	{
		Name: "external", DisplayName: "Your own machine", Icon: "/icon/desktop.svg", Tags: []string{"external"},
		Description: "Uses a Linux machine that you already have: run one command on it.",
	},
	{
		Name: "kubernetes", DisplayName: "Kubernetes pods", Icon: "/icon/kubernetes.svg",
		Tags:        []string{"kubernetes", "container"},
		Description: "Runs workspaces as pods. Home folders are persistent volumes, kept between restarts.",
	},
	{
		Name: "process", DisplayName: "Processes on the provisioner's host", Icon: "/icon/terminal.svg",
		Tags: []string{"local"},
		Description: "Runs workspaces as sandboxed processes on the provisioner's machine. There is nothing to " +
			"install: best for a first try.",
	},
}

// List returns the starters, sorted by name.
func List() []Starter { return slices.Clone(all) }

// Get returns the files and the description of a starter, or false if there is none with that name.
func Get(name string) (fs.FS, Starter, bool) {
	i := slices.IndexFunc(all, func(s Starter) bool { return s.Name == name })
	if i < 0 {
		return nil, Starter{}, false
	}
	files, err := fs.Sub(content, name)
	if err != nil {
		panic(err) // the names above are valid paths
	}
	return files, all[i], true
}
