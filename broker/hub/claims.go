package hub

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
)

// Limits of what agents claim to have stored.
const (
	maxUnproven = 256  // requests that wait for the store's word; a machine has one in work
	maxProven   = 4096 // blobs remembered as whole: a claim stands in every report until the hub has taken it
	maxAbsent   = 4096 // claims remembered as false
	maxLooks    = 8    // claims of one report that the store is asked about: then come other machines, and the rest with the next report
	absentFor   = 10 * time.Second
)

// claims holds agents to the rule that a fact which names a blob comes after all of its parts: before a report reaches
// Core, what it says is stored is looked for. A first base, a checkpoint or a member that is not there would stop whoever
// must go on from it. Deltas are read whole by the inspection and need no claim. A look at a large blob takes its time, and one
// goroutine looks for all machines: only claims that could become facts are looked at, and a few of each report.
type claims struct {
	waiting chan *incoming
	mu      sync.Mutex
	proven  map[domain.Digest]struct{}
	absent  map[claim]time.Time // when it was looked for; by machine, so that none can have another's blob taken for absent
	said    rate.Sometimes      // a claim of what is not stored stands in every report: it is said aloud now and then
}

// claim is a machine's word that a blob is stored.
type claim struct {
	machine domain.MachineID
	blob    domain.Digest
}

// claimSaidEvery spaces the hub's own complaints of claims that are not proven.
const claimSaidEvery = 30 * time.Second

func newClaims() *claims {
	return &claims{waiting: make(chan *incoming, maxUnproven), proven: map[domain.Digest]struct{}{}, absent: map[claim]time.Time{}, said: rate.Sometimes{First: 1, Interval: claimSaidEvery}}
}

// eachClaim calls f with every blob that the request says is stored, and strikes out the claims for which it gives false.
func eachClaim(r *wire.SyncRequest, f func(domain.Digest) bool) {
	for i := range r.Slots {
		slot := &r.Slots[i]
		if slot.Init != nil && slot.Init.Base != "" && !f(slot.Init.Base) {
			slot.Init = nil
		}
		m := slot.Member
		if m == nil {
			continue
		}
		if m.Checkpoint != nil && m.Checkpoint.Blob != "" && !f(m.Checkpoint.Blob) {
			m.Checkpoint = nil
		}
		if m.Trained != nil && !f(m.Trained.Weights) {
			m.Trained = nil
		}
		if m.Outputs != nil && !f(m.Outputs.Blob) {
			m.Outputs = nil
		}
	}
}

// known reports whether every claim of the request was found before.
func (c *claims) known(r *wire.SyncRequest) bool {
	all := true
	c.mu.Lock()
	defer c.mu.Unlock()
	eachClaim(r, func(d domain.Digest) bool {
		_, ok := c.proven[d]
		all = all && ok
		return true
	})
	return all
}

// strip takes claims out of the request that no lease makes a fact of, so that nobody looks for them. Of a first base its sign stays:
// whoever holds no lease must hear that it may forget its result.
func (f *fold) strip(m domain.MachineID, r *wire.SyncRequest) {
	for i := range r.Slots {
		slot := &r.Slots[i]
		s, l := f.lease(domain.Slot(m, slot.Index))
		held := l != nil && slot.Run == s.ID && slot.Epoch == l.Epoch
		if slot.Init != nil && (!held || l.Unit != run.UnitInit) {
			slot.Init = &wire.Init{}
		}
		switch {
		case slot.Member == nil:
		case !held || l.Unit != run.UnitMember:
			slot.Member = nil
		default:
			stripMember(s, l, slot.Member)
		}
	}
}

// stripMember takes out what the log holds already.
func stripMember(s *run.State, l *run.Lease, r *wire.Member) {
	m := s.Member(l.Member)
	if r.Checkpoint != nil && !isNews(s, l, r.Checkpoint) {
		r.Checkpoint = nil
	}
	if m.Weights != "" {
		r.Trained = nil
	}
	if m.Outputs != nil {
		r.Outputs = nil
	}
}

// has reports whether a blob was found before.
func (c *claims) has(d domain.Digest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.proven[d]
	return ok
}

// lacks reports whether a machine's blob was looked for just now, in vain.
func (c *claims) lacks(k claim, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.absent[k]
	return ok && now.Sub(at) < absentFor
}

func (c *claims) miss(k claim, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.absent) >= maxAbsent {
		clear(c.absent)
	}
	c.absent[k] = now
}

func (c *claims) remember(d domain.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.proven) >= maxProven {
		clear(c.proven)
	}
	c.proven[d] = struct{}{}
}

// forget lets every proof lapse: a collection may take what was whole, and a claim that comes after it is looked for again.
func (c *claims) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.proven)
}

// proveAll asks the store about the claims of one request after another.
func (s *Service) proveAll(ctx context.Context) {
	for {
		select {
		case in := <-s.claims.waiting:
			if err := s.prove(ctx, in); err != nil {
				s.refuse(in, err)
				continue
			}
			s.submit(in)
		case <-ctx.Done():
			return
		}
	}
}

// prove strikes out of the request what is not in the store, and what is beyond maxLooks: it stands in the next report again. An
// error says that the store could not tell.
func (s *Service) prove(ctx context.Context, in *incoming) (failed error) {
	looks := 0
	eachClaim(&in.request, func(d domain.Digest) bool {
		k := claim{in.machine, d}
		switch {
		case s.claims.has(d):
			return true
		case failed != nil:
			return true // the report comes again as it is
		case looks == maxLooks || s.claims.lacks(k, s.now()):
			return false
		}
		looks++
		whole, err := s.stored(ctx, d)
		switch {
		case err != nil:
			failed = err
		case whole:
			s.claims.remember(d)
		default:
			s.claims.miss(k, s.now())
			s.claims.said.Do(func() {
				s.cfg.Logger.Warn().Str("machine", string(in.machine)).Str("blob", string(d)).Msg("a report names a blob that is not stored: the claim is ignored")
			})
		}
		return whole || err != nil
	})
	return failed
}

// stored reports whether the manifest and every part of the blob are in the store. What is no manifest is no blob.
func (w weights) stored(ctx context.Context, d domain.Digest) (bool, error) {
	r, err := blob.Open(ctx, d, w.blobs.Get)
	switch domain.KindOf(err) {
	case domain.KindNotFound, domain.KindIntegrity, domain.KindInvalid:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	has, err := w.blobs.Has(ctx, r.Manifest().Parts)
	if err != nil {
		return false, err
	}
	for _, ok := range has {
		if !ok {
			return false, nil
		}
	}
	return true, nil
}
