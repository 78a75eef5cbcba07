package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials writes what the programs contain: the Go modules that are linked into any of them, as the programs
// themselves say, and the packages of the dashboard, as its lock file says.
func (r *release) billOfMaterials() error {
	programs, err := r.list()
	if err != nil {
		return err
	}
	all := map[string]cyclonedx.Component{} // by package URL
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p.path)
		if err != nil {
			return fmt.Errorf("read the modules of %s: %w", p.path, err)
		}
		add(all, component("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
		for _, module := range info.Deps {
			add(all, goModule(module))
		}
	}
	packages, err := npmPackages(filepath.Join(r.root, "site", "package-lock.json"))
	if err != nil {
		return err
	}
	for _, c := range packages {
		add(all, c)
	}
	product := component("golang", "github.com/codermesh/codermesh/v2", r.version)
	product.Type = cyclonedx.ComponentTypeApplication
	list := make([]cyclonedx.Component, 0, len(all))
	for _, url := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[url])
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &product}
	bom.Components = &list
	return r.create("codermesh_"+r.version+".cdx.json", func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

func add(all map[string]cyclonedx.Component, c cyclonedx.Component) { all[c.PackageURL] = c }

// component names a package by its package URL (github.com/package-url/purl-spec).
func component(kind, name, version string) cyclonedx.Component {
	url := "pkg:" + kind + "/" + strings.ReplaceAll(name, "@", "%40") + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version,
		PackageURL: url}
}

func goModule(module *debug.Module) cyclonedx.Component {
	if module.Replace != nil {
		module = module.Replace
	}
	return component("golang", module.Path, module.Version)
}

// npmPackages lists the packages that the dashboard may contain; those of its build are left out.
func npmPackages(lock string) ([]cyclonedx.Component, error) {
	data, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var file struct {
		Packages map[string]struct {
			Version string `json:"version"`
			Dev     bool   `json:"dev"`
			License string `json:"license"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", lock, err)
	}
	var list []cyclonedx.Component
	for path, p := range file.Packages {
		_, name, ok := cutLast(path, "node_modules/")
		if !ok || p.Dev {
			continue
		}
		c := component("npm", name, p.Version)
		if p.License != "" {
			c.Licenses = &cyclonedx.Licenses{{Expression: p.License}}
		}
		list = append(list, c)
	}
	return list, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
