package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// TestGoodbyes checks which goodbyes a participant hears again.
func TestGoodbyes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g goodbyes
		first, back, late := uuid.New(), uuid.New(), uuid.New()
		g.say(first, []byte("first"))
		g.say(back, []byte("back"))
		delete(g.by, back)
		if got := g.repeat(); len(got) != 1 || string(got[0]) != "first" {
			t.Errorf("%q is said again", got)
		}
		time.Sleep(goodbyeTime + time.Second)
		g.say(late, []byte("late"))
		if got := g.repeat(); len(got) != 1 || string(got[0]) != "late" || len(g.order) != 1 {
			t.Errorf("%q is said again, %d are kept", got, len(g.order))
		}
	})
}
