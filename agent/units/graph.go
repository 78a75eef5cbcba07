package units

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

// Status is the progress of a unit.
type Status string

const (
	Pending  Status = "pending" // declared, or wanted by another
	Started  Status = "started"
	Complete Status = "complete"
)

const (
	maxUnits = 1024
	maxName  = 256 // bytes
	// maxWanted bounds the names that listed units want, in bytes: the answer has them twice, and escapes some.
	maxWanted = 256 << 10
)

// Unit describes one unit.
type Unit struct {
	Name   string   `json:"name"`
	Status Status   `json:"status"`
	Wants  []string `json:"wants"`           // in the order of declaration
	Waits  []string `json:"waits"`           // those of Wants that are not complete
	Ready  bool     `json:"ready"`           // it may start
	Known  bool     `json:"known"`           // a script has named it
	Error  string   `json:"error,omitempty"` // of the request
	Units  []Unit   `json:"units,omitempty"` // the answer to list; else none
}

type unit struct {
	Status Status   `json:"status"`
	Wants  []string `json:"wants,omitempty"`
}

// Graph holds the units of one workspace. It is safe for concurrent use.
type Graph struct {
	path string // "" keeps nothing

	mu      sync.Mutex // guards the fields below
	build   uint64
	units   map[string]*unit
	changed notify.Broadcast
}

// stored is a Graph's file.
type stored struct {
	Build uint64           `json:"build"`
	Units map[string]*unit `json:"units"`
}

// New returns a Graph with the units that the file at path records for a build. It is empty if the file is another
// build's or cannot be read. An empty path keeps the units in memory only.
func New(path string, build uint64) *Graph {
	g := &Graph{path: path, build: build, units: map[string]*unit{}}
	data, err := os.ReadFile(path)
	var s stored
	if err == nil && json.Unmarshal(data, &s) == nil && s.Build == build {
		for name, u := range s.Units {
			if u != nil && checkName(name) == nil {
				g.units[name] = u
			}
		}
	}
	return g
}

// NextBuild forgets all units, unless build is the current one.
func (g *Graph) NextBuild(build uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.build == build {
		return
	}
	g.build, g.units = build, map[string]*unit{}
	_ = g.change() // an unwritten change is lost only with the agent
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("%q is not a unit name: a name has 1 to %d bytes", name, maxName)
	}
	return nil
}

// at returns the unit, and adds it if there is none. Called with mu held.
func (g *Graph) at(name string) (*unit, error) {
	if u := g.units[name]; u != nil {
		return u, nil
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if len(g.units) >= maxUnits {
		return nil, fmt.Errorf("there are %d units already", maxUnits)
	}
	u := &unit{Status: Pending}
	g.units[name] = u
	return u, nil
}

// change wakes waiting calls and writes the units. Called with mu held.
func (g *Graph) change() error {
	g.changed.Notify()
	if g.path == "" {
		return nil
	}
	data, err := json.Marshal(stored{g.build, g.units})
	if err != nil {
		return fmt.Errorf("encode units: %w", err)
	}
	temp := g.path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil // the agent has reported the unwritable state folder
		}
		return fmt.Errorf("keep units: %w", err)
	}
	return os.Rename(temp, g.path)
}

// Want declares that name cannot start before others are complete. It refuses a cycle.
func (g *Graph) Want(name string, others ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.at(name)
	if err != nil {
		return err
	}
	if u.Status != Pending {
		return fmt.Errorf("%s has already started: declare what it wants before", name)
	}
	for _, other := range others {
		if other == name || g.reaches(other, name) {
			return fmt.Errorf("%s cannot want %s, which waits for it", name, other)
		}
		if _, err := g.at(other); err != nil {
			return err
		}
		if !slices.Contains(u.Wants, other) {
			u.Wants = append(u.Wants, other)
		}
	}
	return g.change()
}

// reaches reports whether from wants to, directly or not. Called with mu held.
func (g *Graph) reaches(from, to string) bool {
	seen := map[string]bool{}
	var walk func(string) bool
	walk = func(name string) bool {
		u := g.units[name]
		if u == nil || seen[name] {
			return false
		}
		seen[name] = true
		return slices.Contains(u.Wants, to) || slices.ContainsFunc(u.Wants, walk)
	}
	return walk(from)
}

// Start blocks until everything that name wants is complete, and marks it started. If ctx ends first, the error names
// the missing units.
func (g *Graph) Start(ctx context.Context, name string) error {
	for {
		waits, changed, err := g.tryStart(name)
		if err != nil || changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // even if both happened, because the caller no longer waits for this start
			return fmt.Errorf("%s still waits for %s", name, strings.Join(waits, ", "))
		}
	}
}

// tryStart marks a unit started, or returns what it waits for, and a channel that the next change closes.
func (g *Graph) tryStart(name string) (waits []string, changed <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.at(name)
	if err != nil {
		return nil, nil, err
	}
	if u.Status != Pending {
		return nil, nil, fmt.Errorf("%s is %s already", name, u.Status)
	}
	if waits = g.waits(u); len(waits) > 0 {
		return waits, g.changed.Changed(), nil
	}
	u.Status = Started
	return nil, nil, g.change()
}

// waits returns the incomplete units that a unit wants. Called with mu held.
func (g *Graph) waits(u *unit) []string {
	out := []string{}
	for _, other := range u.Wants {
		if o := g.units[other]; o == nil || o.Status != Complete {
			out = append(out, other)
		}
	}
	return out
}

// Complete marks name as complete, which lets the units that want it start.
func (g *Graph) Complete(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u, err := g.at(name)
	if err != nil {
		return err
	}
	u.Status = Complete
	return g.change()
}

// All describes the units that scripts have named, by name. It fails if they want more units than fit into an answer.
func (g *Graph) All() ([]Unit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Unit, 0, len(g.units))
	wanted := 0
	for _, name := range slices.Sorted(maps.Keys(g.units)) {
		for _, other := range g.units[name].Wants {
			wanted += len(other)
		}
		if wanted > maxWanted {
			return nil, errors.New("the units want too many others to be listed: ask for the status of each")
		}
		all = append(all, g.describe(name))
	}
	return all, nil
}

// Get describes a unit, even one that no script has named.
func (g *Graph) Get(name string) Unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.describe(name)
}

// describe is Get. Called with mu held.
func (g *Graph) describe(name string) Unit {
	u := g.units[name]
	if u == nil {
		return Unit{Name: name, Status: Pending, Wants: []string{}, Waits: []string{}, Ready: true}
	}
	waits := g.waits(u)
	return Unit{Name: name, Status: u.Status, Wants: append([]string{}, u.Wants...), Waits: waits,
		Ready: len(waits) == 0 && u.Status == Pending, Known: true}
}
