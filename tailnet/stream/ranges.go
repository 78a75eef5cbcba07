package stream

import "slices"

// span is the half-open interval [start, end).
type span struct{ start, end uint64 }

// ranges is a set of numbers, stored as sorted spans that do not touch.
type ranges []span

// add adds [start, end) and reports whether any of it is new.
func (r *ranges) add(start, end uint64) bool {
	if start >= end {
		return false
	}
	s := *r
	if n := len(s); n > 0 && s[n-1].start <= start && start <= s[n-1].end { // usually the last one grows
		if end <= s[n-1].end {
			return false
		}
		s[n-1].end = end
		return true
	}
	// The spans [i, j) touch the new one.
	i, _ := slices.BinarySearchFunc(s, start, func(e span, at uint64) int {
		if e.end < at {
			return -1
		}
		return 1
	})
	j := i
	for j < len(s) && s[j].start <= end {
		j++
	}
	if i == j {
		*r = slices.Insert(s, i, span{start, end})
		return true
	}
	if j == i+1 && s[i].start <= start && end <= s[i].end {
		return false
	}
	s[i] = span{min(start, s[i].start), max(end, s[j-1].end)}
	*r = slices.Delete(s, i+1, j)
	return true
}

// remove removes [start, end).
func (r *ranges) remove(start, end uint64) {
	s := *r
	for i := 0; i < len(s) && start < end; i++ {
		e := s[i]
		switch {
		case e.end <= start:
		case e.start >= end:
			i = len(s)
		case e.start < start && e.end > end:
			s[i].end = start
			s = slices.Insert(s, i+1, span{end, e.end})
			i = len(s)
		case e.start < start:
			s[i].end = start
		case e.end > end:
			s[i].start = end
		default:
			s = slices.Delete(s, i, i+1)
			i--
		}
	}
	*r = s
}

// has reports whether all of [start, end) is in the set.
func (r ranges) has(start, end uint64) bool {
	for i := len(r) - 1; i >= 0; i-- {
		if r[i].start <= start {
			return end <= r[i].end
		}
	}
	return start >= end
}
