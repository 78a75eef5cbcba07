package mesh

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// admissions is the coordinator's relay: this server's, and those of the region proxies that are connected to it.
type admissions struct {
	relay *relay.Server

	mu        sync.Mutex
	keys      map[tailnet.PublicKey]struct{}
	followers map[*KeyFollower]struct{}
}

func (a *admissions) Admit(k tailnet.PublicKey) {
	a.relay.Admit(k)
	a.change(k, true)
}

func (a *admissions) Revoke(k tailnet.PublicKey) {
	a.change(k, false)
	a.relay.Revoke(k)
}

func (a *admissions) change(k tailnet.PublicKey, admitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if admitted {
		a.keys[k] = struct{}{}
	} else {
		delete(a.keys, k)
	}
	for f := range a.followers {
		f.changed[k] = struct{}{}
		f.wake.Poke()
	}
}

// KeyFollower reports which node keys are admitted. Call Close when it is not needed any more.
type KeyFollower struct {
	of      *admissions
	wake    notify.Wake
	changed map[tailnet.PublicKey]struct{} // guarded by of.mu
}

// FollowKeys returns a follower that reports the admitted keys first, and then what changes.
func (s *Service) FollowKeys() *KeyFollower {
	a := s.admissions
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &KeyFollower{of: a, wake: notify.NewWake(), changed: maps.Clone(a.keys)}
	a.followers[f] = struct{}{}
	f.wake.Poke()
	return f
}

// Next blocks until keys have changed, or ctx ends, and returns at most limit of them. more reports whether others have
// changed too. The first call does not block.
func (f *KeyFollower) Next(
	ctx context.Context, limit int,
) (admitted, revoked []tailnet.PublicKey, more bool, err error) {
	select {
	case <-f.wake:
	case <-ctx.Done():
		return nil, nil, false, context.Cause(ctx)
	}
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	for k := range f.changed {
		if limit--; limit < 0 {
			f.wake.Poke()
			return admitted, revoked, true, nil
		}
		delete(f.changed, k)
		if _, ok := f.of.keys[k]; ok {
			admitted = append(admitted, k)
		} else {
			revoked = append(revoked, k)
		}
	}
	return admitted, revoked, false, nil
}

// Close ends the reports. It is idempotent.
func (f *KeyFollower) Close() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	delete(f.of.followers, f)
}

// SetRegions changes the regions of the relay map beside the servers' own, and tells all participants if that differs
// from before.
func (s *Service) SetRegions(regions []tailnet.RelayRegion) {
	s.regions.Lock()
	same := slices.Equal(s.regions.list, regions)
	s.regions.list = slices.Clone(regions)
	s.regions.Unlock()
	if !same {
		s.coord.RelayMapChanged()
	}
}
