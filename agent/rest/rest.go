// Package rest says when a slot shall rest by its owner's rules: in quiet hours, and while another program uses its GPU. It measures
// nothing and pauses nothing: agent/device says who uses a GPU, the hub makes pauses of what the agent tells it. cmd/tensorturn asks
// it for each slot of each sync.
package rest

import (
	"fmt"
	"sync"
	"time"

	"tensorturn/domain/machine"
)

// Another program must use a GPU for BusyFor until its slots rest, and leave it alone for CalmFor until they work again: a video that
// starts and stops must not fill the log, nor cost a contribution each time.
const (
	BusyFor = 10 * time.Second
	CalmFor = time.Minute
)

// Rest holds the rules and what it has seen of each GPU. Safe for concurrent use.
type Rest struct {
	now func() time.Time

	mu   sync.Mutex
	own  rules // of this machine's flags
	hub  rules // of the owner's word at the hub
	gpus map[string]*use
}

// rules is a machine.Rest that was read.
type rules struct {
	text  machine.Rest
	hours []machine.Hours
}

// use is how one GPU is used by others.
type use struct {
	others bool
	since  time.Time // when others began or ended
	rests  bool
}

// New makes a Rest with this machine's own rules. now is the machine's clock, in its own time zone.
func New(own machine.Rest, now func() time.Time) (*Rest, error) {
	r := &Rest{now: now, gpus: map[string]*use{}}
	var err error
	r.own, err = read(own)
	return r, err
}

// Set takes the owner's word at the hub. Hours that this release cannot read are left out.
func (r *Rest) Set(hub machine.Rest) {
	next, _ := read(hub)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hub = next
}

func read(text machine.Rest) (rules, error) {
	out, failed := rules{text: text}, error(nil)
	for _, s := range text.Hours {
		h, err := machine.ParseHours(s)
		if err != nil {
			failed = err
			continue
		}
		out.hours = append(out.hours, h)
	}
	return out, failed
}

// Why says for what cause a slot shall rest, and why; an empty cause for one that may work. g is its GPU, nil for the CPU.
func (r *Rest) Why(g *machine.GPU) (machine.Cause, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, from := range []rules{r.own, r.hub} {
		for _, h := range from.hours {
			if h.Quiet(now.Weekday(), 60*now.Hour()+now.Minute()) {
				return machine.ByHours, fmt.Sprintf("quiet hours %s on its own clock", h)
			}
		}
	}
	if g != nil && r.used(g, now) {
		return machine.ByOthers, "another program uses its GPU"
	}
	return "", ""
}

// used follows the GPU, whether a rule asks or not, and reports whether its slots rest.
func (r *Rest) used(g *machine.GPU, now time.Time) bool {
	u := r.gpus[g.UUID]
	if u == nil {
		if len(r.gpus) >= machine.MaxGPUs {
			clear(r.gpus) // GPUs come and go; what is forgotten is learnt again within CalmFor
		}
		u = &use{since: now.Add(-CalmFor)}
		r.gpus[g.UUID] = u
	}
	if g.Others != u.others {
		u.others, u.since = g.Others, now
	}
	switch held := now.Sub(u.since); {
	case u.others && held >= BusyFor:
		u.rests = true
	case !u.others && held >= CalmFor:
		u.rests = false
	}
	return u.rests && (r.own.text.WhileUsed || r.hub.text.WhileUsed)
}
