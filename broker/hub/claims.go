package hub

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// Limits of what agents claim to have stored.
const (
	maxUnproven = 256  // requests that wait for the store's word; a machine has one in work
	maxProven   = 4096 // blobs remembered as whole: a claim stands in every report until the hub has taken it
)

// claims holds agents to the rule that a fact which names a blob comes after all of its parts: before a report reaches
// Core, what it says is stored is looked for. A first base, a checkpoint or a member that is not there would stop whoever
// must go on from it. Deltas are read whole by the inspection and need no claim.
type claims struct {
	waiting chan *incoming
	mu      sync.Mutex
	proven  map[domain.Digest]struct{}
	said    rate.Sometimes // a claim of what is not stored stands in every report: it is said aloud now and then
}

// claimSaidEvery spaces the hub's own complaints of claims that are not proven.
const claimSaidEvery = 30 * time.Second

func newClaims() *claims {
	return &claims{waiting: make(chan *incoming, maxUnproven), proven: map[domain.Digest]struct{}{}, said: rate.Sometimes{First: 1, Interval: claimSaidEvery}}
}

// eachClaim calls f with every blob that the request says is stored, and strikes out the claims for which it gives false.
func eachClaim(r *wire.SyncRequest, f func(domain.Digest) bool) {
	for i := range r.Slots {
		slot := &r.Slots[i]
		if slot.Init != nil && !f(slot.Init.Base) {
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
				s.sendReply(in.reply, errorReply(s.cfg.Core.Timing, s.now(), err))
				s.leave(in.machine)
				continue
			}
			s.submit(in)
		case <-ctx.Done():
			return
		}
	}
}

// prove strikes out of the request what is not in the store. An error says that the store could not tell.
func (s *Service) prove(ctx context.Context, in *incoming) (failed error) {
	eachClaim(&in.request, func(d domain.Digest) bool {
		whole, err := s.stored(ctx, d)
		switch {
		case err != nil:
			failed = err
		case whole:
			s.claims.remember(d)
		default:
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
