package agent

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// replied takes the hub's answer to the newest sync in. Any other answer is stale: a newer question is on its way.
func (c *Core) replied(now time.Duration, in Replied) []Effect {
	if !c.contact.awaits(in.Counter) {
		return nil
	}
	r := in.Reply
	if r.Error != nil { // the hub cannot serve: no contact in the sense of the lease
		c.contact.failed(now, c.rand)
		return nil
	}
	c.contact.acknowledged(now, seconds(r.Interval), seconds(r.Lease), r.Stop)
	if c.muted && c.holding() {
		c.contact.tell() // what was held back
	}
	var out []Effect
	for _, d := range r.Slots {
		if d.Index >= 0 && d.Index < len(c.slots) {
			out = c.desire(now, out, c.slots[d.Index], d)
		}
	}
	out = c.mergedRounds(out, r.Merged)
	c.want(now, r.Wanted)
	if c.newerHead(r.Head) {
		c.head = append([]byte(nil), r.Head...)
		out = append(out, SaveHead{Head: c.head})
	}
	if r.Credential != "" {
		out = append(out, SaveCredential{JWT: r.Credential})
	}
	return out
}

// newerHead reports whether a signed head is to be kept in place of ours: this hub's key signed it, and it is further on. A
// hub whose log was rolled back must not take away the head that shows it.
func (c *Core) newerHead(head []byte) bool {
	if len(head) == 0 || string(head) == string(c.head) {
		return false
	}
	if c.cfg.HeadSeq == nil {
		return true
	}
	seq, ok := c.cfg.HeadSeq(head)
	ours, kept := c.cfg.HeadSeq(c.head)
	return ok && (!kept || seq > ours)
}

// desire changes what a slot holds to what the hub wants it to hold.
func (c *Core) desire(now time.Duration, out []Effect, s *slot, d wire.SlotDesire) []Effect {
	if s.lease != nil && s.lease.epoch != d.Epoch {
		out = c.part(s, out)
		s.idleSince = now
	}
	switch {
	case d.Run == "":
		return out
	case s.lease != nil:
		s.lease.wants(d)
	case d.Epoch > s.newest && d.Job != nil:
		s.newest, d.Done = d.Epoch, false // done speaks of the result reported under the lease before
		s.lease = &lease{run: d.Run, epoch: d.Epoch, unit: d.Unit, round: d.Round, job: *d.Job, number: d.Number}
		if d.Unit == run.UnitMember {
			s.lease.member = newMember(d)
		}
		s.adopt(s.lease, d.Adopt)
		s.lease.wants(d)
	case d.Epoch > s.newest:
		c.contact.tell() // the hub believed the epoch held; the next report shows that it is not
	}
	return out
}

// wants takes the newest word on the lease. What runs goes on; Core.next acts when it has ended.
func (l *lease) wants(d wire.SlotDesire) {
	l.want = want{base: d.Base, increment: d.Increment, fed: d.Fed, number: d.Number, claims: append([]domain.ChunkID(nil), d.Claims...), contribute: d.Contribute,
		saved: d.Saved, trained: d.Trained}
	if d.Cut != nil {
		k := *d.Cut
		l.want.cut = &k
	}
	if d.Done {
		l.done, l.init, l.eval, l.err = true, nil, nil, ""
	}
}

// mergedRounds lets deltas go whose rounds are in the log. Runs the hub no longer names are forgotten here as well.
func (c *Core) mergedRounds(out []Effect, merged []wire.MergedRound) []Effect {
	now := make(map[domain.RunID]int, len(merged))
	for _, m := range merged {
		if m.Round > c.merged[m.Run] {
			out = append(out, DropDeltas{Run: m.Run, Round: m.Round})
		}
		now[m.Run] = max(m.Round, c.merged[m.Run])
	}
	c.merged = now
	return c.outlast(out)
}

// want replaces the list of blobs to send again. The one under way stays first.
func (c *Core) want(now time.Duration, wanted []domain.Digest) {
	var list, missing []domain.Digest
	if c.resending {
		list = append(list, c.wanted[0])
	}
	for _, d := range wanted {
		switch {
		case contains(c.missing, d):
			missing = append(missing, d) // said in every report while the hub asks
		case !contains(list, d) && len(list) < wire.MaxWanted:
			list = append(list, d)
		}
	}
	if len(c.wanted) == 0 {
		c.resends, c.resendAt = 0, now
	}
	c.wanted, c.missing = list, missing
}

// resend starts the next blob that is asked for again. Without contact it waits: nobody may be asking any more.
func (c *Core) resend(now time.Duration) Effect {
	if c.resending || len(c.wanted) == 0 || now < c.resendAt {
		return nil
	}
	if c.Fenced(now) {
		c.resendAt = now + transferFirst // later, not at once: Next must lie ahead
		return nil
	}
	c.resending = true
	return UploadAgain{Blob: c.wanted[0]}
}

func (c *Core) resent(in Resent) {
	if !c.resending || in.Blob != c.wanted[0] {
		return
	}
	c.resending, c.resends, c.wanted = false, 0, c.wanted[1:]
	if in.Missing && len(c.missing) < wire.MaxWanted {
		c.missing = append(c.missing, in.Blob)
	}
	c.contact.tell()
}

func contains(ds []domain.Digest, d domain.Digest) bool {
	for _, x := range ds {
		if x == d {
			return true
		}
	}
	return false
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
