package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// scriptedHub is a Transport whose other end follows a fixed story: slot 0 makes the first base; every slot contributes
// twice; an offer of more chunks than keep is cut; slot 0 evaluates; the machine is drained.
type scriptedHub struct {
	job   wire.Job
	claim func(slot, number int) []domain.ChunkID
	keep  map[int]int // by slot: cut the first offer to so many chunks

	mu      sync.Mutex
	wake    func()
	fail    bool // no answer
	base    domain.Digest
	numbers []int
	offers  map[string]wire.Offer // "slot/number" → accepted offer
	cuts    map[int]bool
	eval    *wire.Eval
	errors  []string
	stop    bool // answer stop as soon as no slot holds anything
	counter uint64
	seen    chan wire.SyncRequest // every request, if anybody listens
}

const (
	contributions = 2
	evaluateEpoch = 100
)

func newScriptedHub(job wire.Job, slots int, claim func(slot, number int) []domain.ChunkID) *scriptedHub {
	h := &scriptedHub{job: job, claim: claim, keep: map[int]int{}, offers: map[string]wire.Offer{}, cuts: map[int]bool{}, seen: make(chan wire.SyncRequest, 1)}
	for range slots {
		h.numbers = append(h.numbers, 1)
	}
	return h
}

func (h *scriptedHub) OnWake(f func())     { h.mu.Lock(); defer h.mu.Unlock(); h.wake = f }
func (h *scriptedHub) Connected() bool     { return true }
func (h *scriptedHub) Close()              {}
func (h *scriptedHub) set(f func())        { h.mu.Lock(); defer h.mu.Unlock(); f() }
func (h *scriptedHub) key(s, n int) string { return fmt.Sprintf("%d/%d", s, n) }

func (h *scriptedHub) Sync(ctx context.Context, b []byte) ([]byte, error) {
	req, err := wire.DecodeRequest(b)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.seen <- *req:
	default:
	}
	if h.fail {
		return nil, domain.Unavailable("sync", "no link", "", ctx.Err())
	}
	if req.Counter <= h.counter {
		h.errors = append(h.errors, "a counter did not grow")
	}
	h.counter = req.Counter
	reply := &wire.SyncReply{Interval: 0.05, Lease: 6}
	holding := false
	for _, r := range req.Slots {
		h.take(r)
		d := h.desire(r)
		holding = holding || d.Run != ""
		reply.Slots = append(reply.Slots, d)
	}
	if !holding && (h.eval != nil || h.stop) {
		reply.Stop = true
		reply.Merged = []wire.MergedRound{{Run: "r-1", Round: 1}}
	}
	return wire.EncodeReply(reply)
}

// take notes results.
func (h *scriptedHub) take(r wire.SlotReport) {
	if r.Error != "" && !slices.Contains(h.errors, r.Error) {
		h.errors = append(h.errors, r.Error)
	}
	if r.Init != nil {
		h.base = r.Init.Base
		h.job.Layout = r.Init.Layout
	}
	if r.Eval != nil {
		h.eval = r.Eval
	}
	n := h.numbers[r.Index]
	if r.Offer == nil || r.Number != n {
		return
	}
	if k, ok := h.keep[r.Index]; ok && len(r.Offer.Chunks) > k && n == 1 {
		h.cuts[r.Index] = true
		return
	}
	h.offers[h.key(r.Index, n)] = *r.Offer
	h.numbers[r.Index]++
}

func (h *scriptedHub) desire(r wire.SlotReport) wire.SlotDesire {
	d := wire.SlotDesire{Index: r.Index, Run: "r-1", Round: 1, Base: h.base, Number: h.numbers[r.Index]}
	all := true
	for _, n := range h.numbers {
		all = all && n > contributions
	}
	switch {
	case h.stop, h.eval != nil:
		return wire.SlotDesire{Index: r.Index}
	case h.base == "" && r.Index == 0:
		d.Epoch, d.Unit = 1, run.UnitInit
	case h.base == "":
		return wire.SlotDesire{Index: r.Index}
	case all && r.Index == 0:
		d.Epoch, d.Unit = evaluateEpoch, run.UnitEvaluate
	case d.Number > contributions:
		return wire.SlotDesire{Index: r.Index}
	default:
		h.train(&d, r)
	}
	if r.Epoch != d.Epoch {
		job := h.job
		d.Job = &job
	}
	return d
}

func (h *scriptedHub) train(d *wire.SlotDesire, r wire.SlotReport) {
	d.Epoch, d.Unit, d.Claims = domain.Epoch(10+r.Index), run.UnitTrain, h.claim(r.Index, d.Number)
	if h.cuts[r.Index] && d.Number == 1 {
		k := h.keep[r.Index]
		d.Claims, d.Cut = d.Claims[:k], &k
	}
	d.Contribute = d.Cut != nil || r.Epoch == d.Epoch && len(r.Trained) == len(d.Claims)
}

func (h *scriptedHub) complain(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.errors) > 0 {
		t.Error("the hub heard:", strings.Join(h.errors, "; "))
	}
}
