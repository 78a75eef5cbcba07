package replicas

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// TestCutOff checks which servers without links leave the service to others, and when.
func TestCutOff(t *testing.T) {
	t.Parallel()
	self, other, third := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	n := func(links int32) *int32 { return &links }
	type row struct {
		id    uuid.UUID
		links *int32
		dies  time.Duration // how long after it was heard its heartbeats end; 0: it lives
		new   bool          // it started when this server had heard no other for 14 s
	}
	// A machine that loses its power may have been heard one ping before.
	const ping = 3 * time.Second
	for name, c := range map[string]struct {
		rows []row // oldest first
		want bool
	}{
		"a lone server":          {rows: []row{{id: self}}},
		"the others are linked":  {rows: []row{{id: self}, {id: other, links: n(1)}, {id: third, links: n(1)}}, want: true},
		"the others died":        {rows: []row{{id: self}, {id: other, links: n(1), dies: ping}, {id: third, links: n(1), dies: ping}}},
		"one of the others died": {rows: []row{{id: self}, {id: other, links: n(1), dies: ping}, {id: third, links: n(0)}}},
		"the older one of two":   {rows: []row{{id: self}, {id: other, links: n(0)}}},
		"the younger one of two": {rows: []row{{id: other, links: n(0)}, {id: self}}, want: true},
		"the younger one, and the older one has not said yet": {rows: []row{{id: other}, {id: self}}},
		"others have just taken the place of those that died": {
			rows: []row{{id: self}, {id: other, links: n(1), new: true}, {id: third, links: n(1), new: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				heard, started := time.Now(), time.Now().Add(-time.Hour)
				s := New(Options{Self: Server{ID: self}, Heard: func(time.Time) (int, time.Time) { return 0, heard }})
				look := func() {
					t.Helper()
					var rows []dbsqlc.ListServersRow
					for _, r := range c.rows {
						at := dbsqlc.ListServersRow{
							ID: r.id, StartedAt: started, BeatAt: time.Now(), Links: r.links, Now: time.Now(),
						}
						if r.dies != 0 && at.BeatAt.After(heard.Add(r.dies)) {
							at.BeatAt = heard.Add(r.dies)
						}
						if r.new {
							at.StartedAt = heard.Add(aloneAfter - time.Second)
						}
						rows = append(rows, at)
					}
					s.decide(rows, time.Now())
				}
				for time.Since(heard) < aloneAfter {
					if look(); s.CutOff() {
						t.Fatalf("cut off after %s", time.Since(heard))
					}
					time.Sleep(s.untilLook(time.Now()))
				}
				if got := time.Since(heard); got != aloneAfter {
					t.Fatalf("the decisive look is after %s", got)
				}
				if look(); s.CutOff() != c.want {
					t.Errorf("after %s: cut off is %t, want %t", aloneAfter, s.CutOff(), c.want)
				}
				if heard = time.Now(); s.CutOff() {
					t.Error("cut off although another server was heard just now")
				}
			})
		})
	}
}

// TestLateAnswers checks that a server that hears others, but late, is not cut off, and that its links count again at
// once.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		self, other := uuid.UUID{1}, uuid.UUID{2}
		heard, links := time.Now(), int32(1)
		s := New(Options{Self: Server{ID: self}, Heard: func(after time.Time) (int, time.Time) {
			if heard.After(after) {
				return 1, heard
			}
			return 0, heard
		}})
		for range 10 { // each time one ping more is late
			began := time.Now()
			for time.Since(began) < aloneAfter-time.Second {
				rest := aloneAfter - time.Second - time.Since(began)
				time.Sleep(min(rest, s.untilLook(time.Now())))
				s.decide([]dbsqlc.ListServersRow{
					{ID: other, BeatAt: time.Now(), Links: &links, Now: time.Now()}, {ID: self, BeatAt: time.Now(), Now: time.Now()},
				}, time.Now())
				if s.CutOff() {
					t.Fatalf("cut off %s after another server was heard", time.Since(heard))
				}
			}
			heard = time.Now()
			if n, _ := s.heard(time.Now()); n != 1 {
				t.Errorf("%d links count that were heard just now", n)
			}
		}
	})
}

// TestNewServerIsNotCutOff checks that a server has the whole time from its start on, whether or not it hears others.
func TestNewServerIsNotCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		self, other, links := uuid.UUID{1}, uuid.UUID{2}, int32(1)
		s := New(Options{Self: Server{ID: self}})
		s.alone.began = time.Now()
		look := func() bool {
			s.decide([]dbsqlc.ListServersRow{
				{ID: other, BeatAt: time.Now(), Links: &links, Now: time.Now()}, {ID: self, BeatAt: time.Now(), Now: time.Now()},
			}, time.Now())
			return s.CutOff()
		}
		for time.Since(s.alone.began) < aloneAfter {
			if look() {
				t.Fatalf("cut off %s after the start", time.Since(s.alone.began))
			}
			time.Sleep(s.untilLook(time.Now()))
		}
		if !look() {
			t.Error("not cut off although it has heard no other since it started")
		}
	})
}
