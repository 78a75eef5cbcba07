package provisionerd

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// accept accepts an offer if a slot is free, and queues the answer. The job starts once the server has confirmed the
// lease.
func (d *Daemon) accept(s *session, offer *provisionerpb.Offer) error {
	key, err := keyOf(offer.GetJobId(), offer.GetEpoch())
	if err != nil {
		return err
	}
	d.mu.Lock()
	slot := -1
	for i, taken := range d.slots {
		if !taken {
			slot = i
			break
		}
	}
	if slot < 0 || d.draining || d.leases[key] != nil {
		d.mu.Unlock()
		d.log.Debug("refused offer", "job", key.job)
		return nil // the server takes the offer back
	}
	d.slots[slot] = true
	d.mu.Unlock()

	file, err := createJournal(d.store.path(key), forJournal(offer))
	if err != nil {
		file = nil
	}
	l := newLease(key, offer, file, d.log, d.wake.Poke)
	if err != nil {
		l.leaveDisk(err)
	}
	l.slot, l.holds, l.pieceBytes = slot, true, d.opts.PieceBytes
	d.mu.Lock()
	d.leases[key] = l
	d.order = append(d.order, l)
	s.queueLocked(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Accept{Accept: &provisionerpb.Accept{JobId: key.job[:], Epoch: key.epoch}}})
	d.mu.Unlock()
	d.wake.Poke()
	return nil
}

// leaseOf returns the lease that a message of the server names, or nil if this daemon does not hold it.
func (d *Daemon) leaseOf(m interface {
	GetJobId() []byte
	GetEpoch() uint64
}) *lease {
	key, err := keyOf(m.GetJobId(), m.GetEpoch())
	if err != nil {
		d.log.Warn("cannot parse the name of a lease", "err", err)
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[key]
}

// acknowledged handles an Ack, which confirms a lease or acknowledges events.
func (d *Daemon) acknowledged(ack *provisionerpb.Ack) {
	l := d.leaseOf(ack)
	if l == nil {
		return
	}
	start, done := l.acknowledge(ack.GetSeq())
	if start {
		if d.opts.Once {
			d.serveOnce()
		}
		d.running.Go(func() { d.work(l) }) // before Stop's Wait returns, which waits for the calling session
	}
	if done {
		d.forget(l)
		if err := d.discard(l); err != nil {
			l.log.Warn("journal not removed", "err", err)
		}
	}
}

// serveOnce keeps the daemon from taking another job: the first has begun.
func (d *Daemon) serveOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining, d.served = true, true
	d.wake.Poke() // the server hears it
}

// forget removes a lease from the table.
func (d *Daemon) forget(l *lease) {
	l.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, l.key)
	for i, other := range d.order {
		if other == l {
			d.order = append(d.order[:i], d.order[i+1:]...)
			break
		}
	}
	d.changed.Notify()
}

func (d *Daemon) discard(l *lease) error {
	if l.disk == nil {
		return nil
	}
	return errors.Join(l.disk.close(), d.store.remove(l.key))
}

// revoked gives up a lease: its job now belongs to another daemon, or to none.
func (d *Daemon) revoked(r *provisionerpb.Revoked) {
	l := d.leaseOf(r)
	if l == nil {
		return
	}
	lost := l.leave()
	l.mu.Lock()
	began := l.started
	l.started = true // a later confirmation must not start the job
	l.mu.Unlock()
	d.mu.Lock()
	runs := began && l.holds
	d.mu.Unlock()
	if runs {
		d.log.Warn("lease lost, stopping the job", "job", l.key.job, "reason", r.GetReason())
		l.askStop(false, "The lease was lost.")
		d.running.Go(func() { d.enforce(l, fenceForce) })
		return // release does the rest
	}
	d.setAside(l, lost, r.GetReason())
	d.free(l)
	d.forget(l)
}

// setAside keeps the journal of a lost lease if it holds events that the server lacks.
func (d *Daemon) setAside(l *lease, lost bool, reason string) {
	if l.disk == nil {
		return
	}
	if !lost {
		if err := d.discard(l); err != nil {
			l.log.Warn("journal not removed", "err", err)
		}
		return
	}
	path, err := d.store.setAside(l.key)
	l.log.Warn("lease lost with undelivered events", "reason", reason, "journal", path, "err",
		errors.Join(err, l.disk.close()))
}

// enforce kills a job that does not end gracefully in time.
func (d *Daemon) enforce(l *lease, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if !d.await(d.ctx, timer.C, func() bool { return !l.holds }) {
		l.askForce()
	}
}

// release is called when a job's run has ended.
func (d *Daemon) release(l *lease) {
	l.mu.Lock()
	gone, lost := l.gone, l.acked < l.last
	l.mu.Unlock()
	if gone {
		d.setAside(l, lost, "the job was stopped")
		d.forget(l)
	}
	d.free(l)
}

// abandon drops unconfirmed leases when the daemon ends. Their jobs have not begun.
func (d *Daemon) abandon() {
	d.each(func(l *lease) {
		l.mu.Lock()
		began := l.started
		l.mu.Unlock()
		if began {
			return
		}
		d.free(l)
		d.forget(l)
		if err := d.discard(l); err != nil {
			l.log.Warn("journal not removed", "err", err)
		}
	})
}

// workingLocked counts jobs that have begun and not ended. Called with mu held.
func (d *Daemon) workingLocked() int {
	n := 0
	for _, l := range d.order {
		if l.holds && l.hasBegun() {
			n++
		}
	}
	return n
}

// free frees the slot for another job.
func (d *Daemon) free(l *lease) {
	d.mu.Lock()
	if l.holds {
		d.slots[l.slot], l.holds = false, false
	}
	d.changed.Notify()
	d.mu.Unlock()
	d.wake.Poke()
}

func keyOf(id []byte, epoch uint64) (leaseKey, error) {
	job, err := uuid.FromBytes(id)
	if err != nil || epoch == 0 {
		return leaseKey{}, fmt.Errorf("lease %x/%d is malformed", id, epoch)
	}
	return leaseKey{job, epoch}, nil
}
