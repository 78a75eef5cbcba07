package rbac

import "sync"

// maxUses bounds what a ledger keeps. A request that made more checks needs all rights that it began with.
const maxUses = 256

// Ledger keeps which rights a request has used, and its sender's rights of now: when they change, the request ends only
// if it has used a right that is lost, and its later checks follow the new rights. An Actor carries it (Actor.Keeping).
// Safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	now   *Actor             // guarded by mu: nil while nothing has changed
	uses  []func(Actor) bool // guarded by mu: each reports whether an actor may do what a check allowed
	whole bool               // guarded by mu: some uses are not kept
}

// Become makes now the rights that later checks follow, and reports whether they suffice for everything that earlier
// ones allowed to the actor with whom the ledger began.
func (l *Ledger) Become(began, now Actor) bool {
	began.ledger, now.ledger = nil, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = &now
	if began.UserID != now.UserID || began.FromWorkspace != now.FromWorkspace || !began.Scope.Equal(now.Scope) ||
		l.whole && !began.Within(now) {
		return false
	}
	for _, may := range l.uses {
		if !may(now) {
			return false
		}
	}
	return true
}

// decide asks a question about the actor with the rights of now. It keeps the question if the answer is yes. No lock is
// held by callers.
func (a Actor) decide(may func(Actor) bool) bool {
	l := a.ledger
	if l == nil {
		return may(a)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !may(a.under(l)) {
		return false
	}
	if len(l.uses) < maxUses {
		l.uses = append(l.uses, may)
	} else {
		l.whole = true
	}
	return true
}

// Keeping returns the actor with a ledger, which keeps the rights that checks of the actor use.
func (a Actor) Keeping(l *Ledger) Actor {
	a.ledger = l
	return a
}

// Current returns the actor with the rights of now and without a ledger: for what is shown to the actor, such as which
// buttons would work, and for lists, which are right for the moment at which they are made. What an actor does must be
// checked with the actor of the request.
func (a Actor) Current() Actor {
	if a.ledger == nil {
		return a
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.under(a.ledger)
}

// under returns the rights that a locked ledger has, without the ledger.
func (a Actor) under(l *Ledger) Actor {
	if l.now != nil {
		a = *l.now
	}
	a.ledger = nil
	return a
}
