// Package readme reads what the README of a template says about the template: the front matter before its text.
//
//	---
//	display_name: Docker containers
//	description: Runs workspaces as containers on the provisioner's host.
//	icon: /icon/docker.svg
//	tags: [docker, container]
//	---
//
// It knows no server and no template: who uses the values checks them.
package readme

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limit is the largest front matter that is read, in bytes. Templates come from outside, and their READMEs are parsed
// whenever a version is shown.
const Limit = 4 << 10

const mark = "---\n"

// Metadata is what front matter says. An empty field is absent.
type Metadata struct {
	DisplayName string   `yaml:"display_name"`
	Description string   `yaml:"description"`
	Icon        string   `yaml:"icon"`
	Tags        []string `yaml:"tags"`
}

// Parse returns the front matter of a README, and its text without it. A README whose front matter is missing, not YAML
// or too large has no metadata; only what cannot be front matter remains in the text.
func Parse(readme string) (Metadata, string) {
	text := strings.ReplaceAll(strings.TrimPrefix(readme, "\ufeff"), "\r\n", "\n")
	if !strings.HasPrefix(text, mark) {
		return Metadata{}, readme
	}
	front, rest, found := strings.Cut(text[len(mark)-1:], "\n"+mark)
	if !found {
		return Metadata{}, readme
	}
	rest = strings.TrimLeft(rest, "\n")
	if len(front) > Limit {
		return Metadata{}, rest
	}
	var m Metadata
	if err := yaml.Unmarshal([]byte(front), &m); err != nil {
		return Metadata{}, rest
	}
	m.DisplayName, m.Description, m.Icon = strings.TrimSpace(m.DisplayName), strings.TrimSpace(m.Description),
		strings.TrimSpace(m.Icon)
	return m, rest
}
