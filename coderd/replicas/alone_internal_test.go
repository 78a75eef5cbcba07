package replicas

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// TestCutOff checks which servers without links leave the service to others.
func TestCutOff(t *testing.T) {
	t.Parallel()
	self, other, third := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	n := func(links int32) *int32 { return &links }
	type row struct {
		id    uuid.UUID
		links *int32
		dies  bool // its heartbeats end with the links
	}
	for name, c := range map[string]struct {
		rows []row // oldest first
		want bool
	}{
		"a lone server":          {rows: []row{{id: self}}},
		"the others are linked":  {rows: []row{{id: self}, {id: other, links: n(1)}, {id: third, links: n(1)}}, want: true},
		"the others died":        {rows: []row{{id: self}, {id: other, links: n(1), dies: true}, {id: third, links: n(1), dies: true}}},
		"one of the others died": {rows: []row{{id: self}, {id: other, links: n(1), dies: true}, {id: third, links: n(0)}}},
		"the older one of two":   {rows: []row{{id: self}, {id: other, links: n(0)}}},
		"the younger one of two": {rows: []row{{id: other, links: n(0)}, {id: self}}, want: true},
		"the younger one, and the older one has not said yet": {rows: []row{{id: other}, {id: self}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Options{Self: Server{ID: self}})
			begin := time.Now()
			at := func(since time.Duration) (rows []dbsqlc.ListServersRow) {
				for _, r := range c.rows {
					beat := begin.Add(since)
					if r.dies {
						beat = begin
					}
					rows = append(rows, dbsqlc.ListServersRow{ID: r.id, BeatAt: beat, Links: r.links})
				}
				return rows
			}
			s.noteAlone(at(0), 2, begin)
			for since := time.Duration(0); since < aloneAfter; since += 5 * time.Second {
				if s.noteAlone(at(since), 0, begin.Add(since)); s.CutOff() {
					t.Fatalf("cut off after %s", since)
				}
			}
			if s.noteAlone(at(aloneAfter), 0, begin.Add(aloneAfter)); s.CutOff() != c.want {
				t.Errorf("after %s: cut off is %t, want %t", aloneAfter, s.CutOff(), c.want)
			}
			if s.noteAlone(at(aloneAfter), 1, begin.Add(aloneAfter)); s.CutOff() {
				t.Error("cut off with a link")
			}
		})
	}
}
