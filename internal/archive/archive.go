// Package archive decides which names and links a template's archive may contain. The server checks an archive when it
// is uploaded. A provisioner checks again when it unpacks one, and does not rely on the server.
//
// A link may point to a file, a folder or another link of the archive, but neither a name nor a link's target may pass
// through a link. Each link can therefore be judged by its text alone: with a/up → .., the text a/up/.. looks like a
// and is the folder above the archive.
//
// An archive may not contain settings of programs that a provisioner runs in the template's folder to fetch modules: a
// .git folder there decides what git does, and .netrc what it tells to whom.
package archive

import (
	"fmt"
	"path"
	"strings"
)

// maxTarget bounds the text of a link, in bytes.
const maxTarget = 1024

// Names are the entries of one archive. The zero value is empty.
type Names struct {
	entries []string
	links   map[string]string // target by name
}

// Add records an entry that is not a link. It returns an error if the name leads outside of the archive.
func (n *Names) Add(name string) error {
	clean := path.Clean(name)
	if !local(name) {
		return fmt.Errorf("the entry %q lies outside of the archive", name)
	}
	for part := range strings.SplitSeq(clean, "/") {
		if part == ".terraform" {
			break // provisioners drop it
		}
		if program, ok := settings[strings.ToLower(part)]; ok {
			return fmt.Errorf("the entry %q changes how %s works: leave %s out, or give it another name", name, program,
				part)
		}
	}
	n.entries = append(n.entries, clean)
	return nil
}

// settings are names, in lower case, of files and folders with the settings of programs that fetch modules and
// providers.
var settings = map[string]string{
	".git": "git", ".gitconfig": "git", ".git-credentials": "git", ".hg": "Mercurial", ".hgrc": "Mercurial",
	".terraformrc": "Terraform", "terraform.rc": "Terraform", ".tofurc": "OpenTofu", "tofu.rc": "OpenTofu", ".terraform.d": "Terraform",
	".netrc": "git and Terraform", "_netrc": "git and Terraform", ".ssh": "SSH", ".curlrc": "curl", "_curlrc": "curl", ".wgetrc": "wget",
}

// bare returns an entry that makes its folder look like a repository to git, although it is not named .git.
func (n *Names) bare() (head string, ok bool) {
	beside := map[string]bool{} // folders with the parts of a repository
	for _, name := range n.entries {
		for at := name; at != "."; at = path.Dir(at) {
			if base := path.Base(at); base == "objects" || base == "commondir" {
				beside[path.Dir(at)] = true
			}
		}
	}
	for _, name := range n.entries {
		if path.Base(name) == "HEAD" && beside[path.Dir(name)] {
			return name, true
		}
	}
	return "", false
}

// AddLink adds a link. It returns an error if the name or the target leads outside of the archive.
func (n *Names) AddLink(name, target string) error {
	if err := n.Add(name); err != nil {
		return err
	}
	if target == "" || len(target) > maxTarget || path.IsAbs(target) || path.Clean(name) == "." ||
		!local(path.Join(path.Dir(path.Clean(name)), target)) {
		return fmt.Errorf("the link %q leads outside of the archive", name)
	}
	if n.links == nil {
		n.links = map[string]string{}
	}
	n.links[path.Clean(name)] = target
	return nil
}

// Check checks all entries together. Its error names an entry below a link, a link whose target passes through another,
// or a part of a repository.
func (n *Names) Check() error {
	if head, ok := n.bare(); ok {
		return fmt.Errorf("the entry %q makes its folder a git repository: leave it out, or give it another name", head)
	}
	if len(n.links) == 0 {
		return nil
	}
	for _, name := range n.entries {
		if through, ok := n.passes(".", name); ok {
			return fmt.Errorf("the entry %q lies below the link %q", name, through)
		}
	}
	for name, target := range n.links {
		if through, ok := n.passes(path.Dir(name), target); ok {
			return fmt.Errorf("the link %q passes through the link %q: let it lead to its target directly", name,
				through)
		}
	}
	return nil
}

// passes returns a link that the path way, seen from a folder, passes through. The end of the path does not count.
func (n *Names) passes(from, way string) (link string, ok bool) {
	steps := strings.Split(way, "/") // a slash at the end makes an empty last step
	at := from
	for i, step := range steps {
		if at = path.Join(at, step); i == len(steps)-1 {
			break
		}
		if _, isLink := n.links[at]; isLink {
			return at, true
		}
	}
	return "", false
}

// local reports whether a name stays inside the archive. Backslashes separate folders on some systems.
func local(name string) bool {
	clean := path.Clean(name)
	return name != "" && !path.IsAbs(clean) && clean != ".." && !strings.HasPrefix(clean, "../") &&
		!strings.ContainsAny(name, "\\\x00")
}
