// Package statefile reads what identifies a Terraform state. It knows the format, and nothing of what a state manages.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Head identifies a state.
type Head struct {
	Lineage   string // the same for all states that follow from one another
	Serial    uint64 // grows with every change
	Resources int    // instances of managed resources
}

// Read returns the head of a state. An error says why Terraform could not use the text.
func Read(text []byte) (Head, error) {
	var s struct {
		Version   *uint64 `json:"version"`
		Lineage   *string `json:"lineage"`
		Serial    *uint64 `json:"serial"`
		Resources []struct {
			Mode      string            `json:"mode"`
			Instances []json.RawMessage `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return Head{}, fmt.Errorf("not JSON of a state: %w", err)
	}
	switch {
	case s.Version == nil:
		return Head{}, errors.New("no version")
	case *s.Version != 4:
		return Head{}, fmt.Errorf("version %d, and Terraform writes version 4", *s.Version)
	case s.Lineage == nil || *s.Lineage == "":
		return Head{}, errors.New("no lineage")
	case s.Serial == nil:
		return Head{}, errors.New("no serial")
	}
	h := Head{Lineage: *s.Lineage, Serial: *s.Serial}
	for _, r := range s.Resources {
		if r.Mode == "managed" {
			h.Resources += len(r.Instances)
		}
	}
	return h, nil
}
