package wire

import (
	"fmt"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// checkRequest judges what the shape of the bytes cannot show.
func checkRequest(r *SyncRequest) error {
	c := &checker{op: "decode sync request"}
	c.id("incarnation", string(r.Incarnation), false)
	c.atMost("slots", len(r.Slots), domain.MaxSlotsPerMachine)
	c.atMost("head bytes", len(r.Head), MaxHeadBytes)
	c.text("build", r.Build)
	c.text("os", r.Beat.OS)
	c.text("arch", r.Beat.Arch)
	c.count("cpus", r.Beat.CPUs)
	c.digests("missing", r.Missing, MaxWanted)
	c.text("sandbox", r.Beat.Sandbox)
	c.text("why it is not measured", r.Beat.Unmeasured)
	c.pieces(r.Logs)
	c.vitals(r.Beat.Vitals)
	c.holding(r.Holding)
	c.bench(r.Bench)
	c.labels(r.Labels)
	for i := range r.Slots {
		if c.err != nil {
			break
		}
		c.slot(i, r.Slots[i].Index)
		c.report(&r.Slots[i])
	}
	return c.result()
}

// labels become facts of the log.
func (c *checker) labels(labels map[string]string) {
	if err := domain.CheckLabels(c.op, "the request", labels); err != nil && c.err == nil {
		c.require(false, "%v", err)
	}
}

func (c *checker) report(s *SlotReport) {
	c.id("run", string(s.Run), true)
	c.require((s.Run == "") == (s.Epoch == 0), "run and epoch must both be set or both be empty")
	c.require(knownPhase(s.Phase), "phase %q is not known", domain.Clip(string(s.Phase), 40))
	c.count("number", s.Number)
	c.text("error", s.Error)
	c.atMost("last lines", len(s.Tail), run.MaxTailLines)
	for _, line := range s.Tail {
		c.text("last line", line)
	}
	c.measure("speed", s.Speed)
	c.measure("upload", s.Upload)
	if s.Loss != nil {
		c.loss("loss", *s.Loss)
	}
	c.atMost("trained chunks", len(s.Trained), MaxSlotChunks)
	for _, t := range s.Trained {
		c.chunk(t.Chunk)
		c.count("steps", t.Steps)
		c.measure("seconds", t.Seconds)
		c.require(run.IsChunkTime(t.Seconds), "seconds of a chunk are beyond %g", run.MaxChunkSeconds)
		c.loss("loss", t.Loss)
	}
	c.offer(s.Offer)
	c.boundaries(s.Boundaries, len(s.Trained))
	c.late(s.Late)
	if s.Away != nil {
		c.require(s.Away.Cause == machine.ByAbsence || s.Away.Cause == machine.ByOthers || s.Away.Cause == machine.ByHours, "an agent cannot pause a slot for %q", domain.Clip(string(s.Away.Cause), 40))
		c.text("why a slot is away", s.Away.Reason)
	}
	c.member(s.Member)
	if s.Init != nil {
		c.digest("init base", s.Init.Base, false)
		c.digest("init layout", s.Init.Layout, false)
		c.require(s.Init.Params >= 0, "init params is negative")
		if t := s.Init.Take; t != nil {
			c.require(t.Host <= run.MaxTake && t.Device <= run.MaxTake, "a step that took more than %d bytes", uint64(run.MaxTake))
		}
	}
	if s.Eval != nil {
		c.count("evaluated samples", s.Eval.Samples)
		c.measure("accuracy", s.Eval.Accuracy)
		c.loss("evaluation loss", s.Eval.Loss)
		if s.Eval.R2 != nil {
			c.loss("R²", *s.Eval.R2)
		}
		if s.Eval.MAE != nil {
			c.measure("mean absolute error", *s.Eval.MAE)
			c.loss("mean absolute error", *s.Eval.MAE)
		}
	}
}

func (c *checker) offer(o *Offer) {
	if o == nil {
		return
	}
	c.atMost("offered chunks", len(o.Chunks), MaxSlotChunks)
	for _, k := range o.Chunks {
		c.chunk(k)
	}
	c.boundaries(o.Boundaries, len(o.Chunks))
	c.count("steps", o.Steps)
	c.digest("offered blob", o.Blob, false)
	c.codec(o.Codec)
}

// boundaries are prefix lengths of n chunks.
func (c *checker) boundaries(bs []int, n int) {
	c.atMost("boundaries", len(bs), MaxBoundaries)
	before := 0
	for _, k := range bs {
		c.require(k > before && k <= n, "boundaries must ascend from 1 to the number of chunks")
		before = k
	}
}

func (c *checker) late(l *Late) {
	if l == nil {
		return
	}
	c.id("late run", string(l.Run), false)
	c.require(l.Epoch > 0, "late work without an epoch")
	c.count("late number", l.Number)
	c.atMost("late chunks", len(l.Chunks), MaxSlotChunks)
	for _, k := range l.Chunks {
		c.chunk(k)
	}
	c.boundaries(l.Boundaries, len(l.Chunks))
}

func checkReply(r *SyncReply) error {
	c := &checker{op: "decode sync reply"}
	c.atMost("slots", len(r.Slots), domain.MaxSlotsPerMachine)
	c.measure("interval", r.Interval)
	c.measure("lease", r.Lease)
	c.require(r.Interval <= MaxInterval, "interval is beyond an hour")
	c.require(r.Lease <= domain.MaxLease.Seconds(), "lease is beyond an hour")
	c.atMost("head bytes", len(r.Head), MaxHeadBytes)
	c.atMost("credential bytes", len(r.Credential), MaxCredential)
	c.digests("wanted", r.Wanted, MaxWanted)
	c.atMost("merged runs", len(r.Merged), MaxMergedRuns)
	for _, m := range r.Merged {
		c.id("merged run", string(m.Run), false)
		c.count("merged round", m.Round)
	}
	c.wishes(r.Logs)
	c.holds(r.Holds)
	c.count("benchmark", r.Bench)
	if r.Rest != nil {
		c.atMost("quiet hours", len(r.Rest.Hours), machine.MaxHours)
		for _, h := range r.Rest.Hours {
			c.text("quiet hours", h)
		}
	}
	if r.Error != nil {
		c.refusal(*r.Error)
	}
	for i := range r.Slots {
		if c.err != nil {
			break
		}
		c.slot(i, r.Slots[i].Index)
		c.desire(&r.Slots[i])
	}
	return c.result()
}

func (c *checker) pieces(ps []LogPiece) {
	c.atMost("log pieces", len(ps), MaxLogWishes)
	for _, p := range ps {
		c.atMost("bytes of a log piece", len(p.Data), MaxLogPiece)
		c.atMost("listed logs", len(p.Others), MaxLogFiles)
		c.require(p.From >= 0, "a log piece begins before its log")
		c.text("problem", p.Problem)
		for _, f := range append([]LogFile{p.Log}, p.Others...) {
			c.require(f.Attempt >= 0 && f.Member >= AnyMember && f.Bytes >= 0 && f.Changed >= 0, "a log's description is out of range")
		}
	}
}

func (c *checker) wishes(ws []LogWish) {
	c.atMost("log wishes", len(ws), MaxLogWishes)
	for _, w := range ws {
		c.id("run of a log", string(w.Run), false)
		c.require(w.Attempt >= AnyAttempt && w.Member >= AnyMember && w.Bytes >= 1 && w.Bytes <= MaxLogPiece, "a log wish is out of range")
	}
}

func (c *checker) desire(d *SlotDesire) {
	c.id("run", string(d.Run), true)
	c.require((d.Run == "") == (d.Epoch == 0), "run and epoch must both be set or both be empty")
	if d.Run == "" {
		return
	}
	switch d.Unit {
	case run.UnitInit, run.UnitTrain, run.UnitEvaluate:
	case run.UnitMember:
		c.require(d.Member >= 1 && d.Member <= run.MaxMembers+1, "there is no member %d", d.Member)
		c.require(d.Saved >= 0 && d.Saved <= run.MaxChunks, "saved is out of range")
		c.require(d.Base != "" || d.Saved == 0 && !d.Trained, "a checkpoint without a blob")
	default:
		c.require(false, "unit %q is not known", domain.Clip(string(d.Unit), 40))
	}
	c.count("round", d.Round)
	c.count("number", d.Number)
	fresh := d.Unit == run.UnitInit || d.Unit == run.UnitMember // nothing to start from, no layout yet
	c.digest("base", d.Base, fresh)
	if in := d.Increment; in != nil {
		c.digest("increment", in.Blob, false)
		c.digest("base of the increment", in.From, false)
		c.codec(in.Codec)
	}
	c.digest("delta that counts", d.Fed, true)
	c.atMost("claims", len(d.Claims), MaxSlotChunks)
	for _, k := range d.Claims {
		c.chunk(k)
	}
	if d.Cut != nil {
		c.require(*d.Cut >= 0 && *d.Cut <= MaxSlotChunks, "cut is out of range")
	}
	if d.Adopt != nil {
		c.require(d.Adopt.Late > 0 && d.Adopt.Keep > 0 && d.Adopt.Keep <= MaxSlotChunks, "adopted work is out of range")
	}
	if d.Job != nil {
		c.digest("data set", d.Job.Data.Blob, false)
		c.digest("layout", d.Job.Layout, fresh)
		c.ensemble(d)
		c.count("samples", d.Job.Data.Samples)
		c.count("held-out samples", d.Job.Data.Heldout)
	}
}

// checker keeps the first complaint and where it was.
type checker struct {
	op       string
	slotted  bool // within a slot
	position int  // of the slot
	err      *domain.Error
}

func (c *checker) result() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

func (c *checker) require(ok bool, why string, args ...any) {
	if ok || c.err != nil {
		return
	}
	why = fmt.Sprintf(why, args...) // only now: lists have thousands of elements
	if c.slotted {
		why = fmt.Sprintf("slot %d: %s", c.position, why)
	}
	c.err = domain.Invalid(c.op, why, "")
}

// slot says that slots come complete and in order, so that a position is an index.
func (c *checker) slot(position, index int) {
	c.position, c.slotted = position, true
	c.require(position == index, "it says index %d", index)
}

func (c *checker) id(what, s string, empty bool) {
	if s == "" && empty {
		return
	}
	c.require(domain.ValidID(s), "%s %q is not an id", what, domain.Clip(s, 80))
}

func (c *checker) digest(what string, d domain.Digest, empty bool) {
	if d == "" && empty {
		return
	}
	_, err := domain.ParseDigest(string(d))
	c.require(err == nil, "%s is not a SHA-256", what)
}

func (c *checker) digests(what string, ds []domain.Digest, limit int) {
	c.atMost(what, len(ds), limit)
	for _, d := range ds {
		c.digest(what, d, false)
	}
}

func (c *checker) codec(codec run.Codec) {
	c.require(codec.Known(), "codec %q is not known", domain.Clip(string(codec), 40))
}

func (c *checker) chunk(k domain.ChunkID) {
	if k < 0 || k >= run.MaxChunks {
		c.require(false, "chunk %d is out of range", k)
	}
}

func (c *checker) atMost(what string, n, limit int) {
	c.require(n <= limit, "%d %s, at most %d", n, what, limit)
}

func (c *checker) text(what, s string) {
	c.require(len(s) <= MaxText, "%s has %d bytes, at most %d", what, len(s), MaxText)
}

func (c *checker) count(what string, n int) { c.require(n >= 0, "%s is negative", what) }

func (c *checker) finite(what string, x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		c.require(false, "%s is not finite", what)
	}
}

// loss is a figure of a model's quality: any number that sums of it can bear.
func (c *checker) loss(what string, x float64) {
	c.finite(what, x)
	c.require(run.IsLoss(x), "%s is beyond %g", what, run.MaxLoss)
}

func (c *checker) measure(what string, x float64) {
	c.finite(what, x)
	c.require(x >= 0, "%s is negative", what)
}

func knownPhase(p Phase) bool {
	switch p {
	case PhaseIdle, PhasePreparing, PhaseReady, PhaseTraining, PhaseUploading, PhaseOffered, PhaseInit, PhaseEvaluate, PhasePredict:
		return true
	}
	return false
}
