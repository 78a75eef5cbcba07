package jobs

import (
	"testing"
	"time"
)

func TestPlaceLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pace  pace
		place int
		want  string
	}{
		{pace{2, 4, time.Minute}, 1, "1st in line, less than a minute. Provisioners that may take it: 2. Jobs that they run now: 4."},
		{pace{1, 1, time.Minute}, 2, "2nd in line behind 1 other job, about 2 minutes. Provisioners that may take it: 1. Jobs that they run now: 1."},
		{pace{1, 3, time.Minute}, 3, "3rd in line behind 2 other jobs, about 1 minute. Provisioners that may take it: 1. Jobs that they run now: 3."},
		{pace{1, 1, 0}, 11, "11th in line behind 10 other jobs. Provisioners that may take it: 1. Jobs that they run now: 1."},
		{pace{1, 0, time.Minute}, 112, "112th in line behind 111 other jobs. Provisioners that may take it: 1. Jobs that they run now: 0."},
		{pace{1, 1, time.Minute}, 61, "61st in line behind 60 other jobs, about 1 hour. Provisioners that may take it: 1. Jobs that they run now: 1."},
		{pace{1, 1, time.Hour}, 22, "22nd in line behind 21 other jobs, about 22 hours. Provisioners that may take it: 1. Jobs that they run now: 1."},
	} {
		if got := c.pace.line(c.place); got != c.want {
			t.Errorf("%+v, place %d:\n%s, want\n%s", c.pace, c.place, got, c.want)
		}
	}
}
