package dispatch

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/placement"
)

// peer is what is known of one machine.
type peer struct {
	id      domain.MachineID
	account string
	leaving bool
	heard   time.Time
	gone    bool // nobody listened when it was asked; until it is heard again
	room    int

	told  []placement.Key // by position
	mark  string          // of told
	holds map[placement.Key]holding

	open int // rows that it was asked for and has not answered
}

// holding is how a machine stands with a model that it was told to hold.
type holding struct {
	how placement.How
	err error     // of a failure
	at  time.Time // of a failure
}

// wish is a version that is wanted for a while, whether or not it is the one that answers.
type wish struct {
	version *inference.Version
	until   time.Time
}

// want is one model of a version.
type want struct {
	version *inference.Version
	member  inference.Member
	copies  int
}

// Exchange takes what a machine says that it holds and gives what it shall hold, nil when it knows that already. The hub calls
// it for every sync that it accepts; stopping: the agent was asked to end.
func (d *Dispatcher) Exchange(m domain.MachineID, h *wire.Holding, stopping bool) *wire.Holds {
	if h == nil {
		h = &wire.Holding{}
	}
	now := d.cfg.Now()
	d.mu.Lock()
	p := d.peers[m]
	if p == nil {
		p = &peer{id: m, holds: map[placement.Key]holding{}}
		d.peers[m] = p
		d.planned = time.Time{}
	}
	if p.gone || p.room != h.Room || stopping != p.leaving || now.Sub(p.heard) >= d.cfg.Silent {
		d.planned = time.Time{}
	}
	p.heard, p.gone, p.room, p.leaving = now, false, h.Room, stopping
	if p.mark == "" && h.Mark != "" {
		if !h.Tells { // a hub that started anew knows no list: what machines hold already must not be made again elsewhere
			d.mu.Unlock()
			return &wire.Holds{Mark: wire.MarkAsks}
		}
		p.mark, p.told = h.Mark, nil
		for _, k := range h.List {
			p.told = append(p.told, placement.Key{Run: k.Run, Member: k.Member, Weights: k.Weights})
		}
	}
	if h.Mark == p.mark && p.mark != "" {
		d.learn(p, h, now)
	} else if h.Mark == "" { // a new agent process holds nothing yet
		for k, was := range p.holds {
			if was.how == placement.Ready {
				p.holds[k] = holding{}
			}
		}
	}
	if p.account == "" {
		for _, x := range d.cfg.Machines() {
			if x.ID == m {
				p.account = x.Account
			}
		}
	}
	wake := d.plan(now)
	holds := d.list(p)
	gathers := d.gathers(now)
	d.mu.Unlock()
	for _, id := range wake {
		if id != m {
			d.cfg.Wake(id)
		}
	}
	if holds.Mark == h.Mark || h.Room == 0 || gathers {
		return nil
	}
	return holds
}

// learn takes a machine's report on the list that it was sent last.
func (d *Dispatcher) learn(p *peer, h *wire.Holding, now time.Time) {
	ready := map[placement.Key]bool{}
	for _, i := range h.Ready {
		if i < len(p.told) {
			ready[p.told[i]] = true
		}
	}
	failed := map[placement.Key]error{}
	for _, f := range h.Failed {
		if f.Position < len(p.told) {
			failed[p.told[f.Position]] = f.Error.Err("load the model on machine " + string(p.id))
		}
	}
	changed := false
	for _, k := range p.told {
		was, next := p.holds[k], holding{}
		switch {
		case ready[k]:
			next.how = placement.Ready
		case failed[k] != nil:
			next = holding{placement.Failed, failed[k], now}
			if was.how != placement.Failed {
				d.cfg.Logger.Warn().Str("machine", string(p.id)).Str("run", string(k.Run)).Int("member", k.Member).Err(failed[k]).Msg("model not loaded on a machine")
			} else {
				next.at = was.at
			}
		}
		changed = changed || next.how != was.how
		p.holds[k] = next
	}
	if changed {
		d.planned = time.Time{}
		close(d.changed) // whoever waits for a model looks again
		d.changed = make(chan struct{})
	}
}

// plan decides anew who holds what, when there is news or a while has passed, and gives the machines whose list changed. The
// caller holds the lock.
func (d *Dispatcher) plan(now time.Time) (wake []domain.MachineID) {
	if d.gathers(now) || now.Sub(d.planned) < planEvery && now.Sub(d.planned) >= 0 {
		return nil
	}
	d.planned = now
	d.wants = d.wanted(now)
	var wanted []placement.Model
	for _, k := range d.order {
		wanted = append(wanted, placement.Model{Key: k, Copies: d.wants[k].copies})
	}
	var machines []placement.Machine
	var peers []*peer
	known := map[domain.MachineID]bool{}
	for _, m := range d.cfg.Machines() {
		p := d.peers[m.ID]
		if p == nil {
			continue
		}
		known[m.ID] = true
		p.account = m.Account
		for k, h := range p.holds {
			if h.how == placement.Failed && now.Sub(h.at) >= failedTime {
				delete(p.holds, k)
			}
		}
		if !d.counts(p, now) {
			continue
		}
		holds := map[placement.Key]placement.How{}
		for k, h := range p.holds {
			holds[k] = h.how
		}
		machines = append(machines, placement.Machine{ID: m.ID, Room: p.room, Leaving: p.leaving || m.Leaving, Holds: holds})
		peers = append(peers, p)
	}
	for id := range d.peers {
		if !known[id] {
			delete(d.peers, id) // revoked
		}
	}
	for i, keys := range placement.Plan(wanted, machines) {
		if d.tell(peers[i], keys) {
			wake = append(wake, peers[i].id)
		}
	}
	return wake
}

// gathers reports whether machines are still coming back after a start of the hub: whoever comes first must not get everything.
func (d *Dispatcher) gathers(now time.Time) bool { return now.Sub(d.since) < d.cfg.Silent }

// counts reports whether a machine can be counted on.
func (d *Dispatcher) counts(p *peer, now time.Time) bool {
	return !p.gone && p.account != "" && now.Sub(p.heard) < d.cfg.Silent
}

// wanted lists every model that shall be held: of the versions that answer, then of those wished for.
func (d *Dispatcher) wanted(now time.Time) map[placement.Key]want {
	wants := map[placement.Key]want{}
	d.order = d.order[:0]
	add := func(v *inference.Version) {
		for _, m := range membersOf(v) {
			k := keyOf(v, m)
			if _, ok := wants[k]; !ok {
				wants[k] = want{v, m, copiesOf(v)}
				d.order = append(d.order, k)
			}
		}
	}
	for _, v := range d.cfg.Deployed() {
		add(v)
	}
	kept := d.wishes[:0]
	for _, w := range d.wishes {
		if now.Before(w.until) {
			kept = append(kept, w)
			add(w.version)
		}
	}
	clear(d.wishes[len(kept):])
	d.wishes = kept
	return wants
}

// tell notes what a machine shall hold and reports whether that is news. What it held and shall hold no more is forgotten, but
// for failures: they keep it from being asked again.
func (d *Dispatcher) tell(p *peer, keys []placement.Key) bool {
	slices.SortFunc(keys, func(a, b placement.Key) int {
		return cmp.Or(strings.Compare(string(a.Run), string(b.Run)), cmp.Compare(a.Member, b.Member), strings.Compare(string(a.Weights), string(b.Weights)))
	})
	if slices.Equal(keys, p.told) && p.mark != "" {
		return false
	}
	for k, h := range p.holds {
		if h.how != placement.Failed && !slices.Contains(keys, k) {
			delete(p.holds, k)
		}
	}
	for _, k := range keys {
		if _, ok := p.holds[k]; !ok {
			p.holds[k] = holding{}
		}
	}
	p.told = keys
	p.mark = d.list(p).Mark
	return true
}

// list is what a machine shall hold, for the wire.
func (d *Dispatcher) list(p *peer) *wire.Holds {
	out := &wire.Holds{}
	for _, k := range p.told {
		w, ok := d.wants[k]
		if !ok {
			continue
		}
		if n := len(out.Runs); n == 0 || out.Runs[n-1].Run != k.Run {
			out.Runs = append(out.Runs, wire.Hold{Run: k.Run, Spec: w.version.Spec, Data: w.version.Data})
		}
		h := &out.Runs[len(out.Runs)-1]
		h.Models = append(h.Models, wire.HeldModel{Member: k.Member, Weights: k.Weights, Layout: w.member.Layout})
	}
	b, err := wire.EncodeHolds(out.Runs)
	if err != nil { // a list beyond a message: the machine keeps what it has
		d.cfg.Logger.Error().Str("machine", string(p.id)).Err(err).Msg("list of models not sent")
		return &wire.Holds{Mark: p.mark}
	}
	sum := sha256.Sum256(b)
	out.Mark = hex.EncodeToString(sum[:16])
	return out
}

func membersOf(v *inference.Version) []inference.Member {
	if len(v.Members) > 0 {
		return v.Members
	}
	return []inference.Member{{Weights: v.Weights, Layout: v.Layout}}
}

func keyOf(v *inference.Version, m inference.Member) placement.Key {
	return placement.Key{Run: v.Run, Member: m.Number, Weights: m.Weights}
}

func copiesOf(v *inference.Version) int {
	if v.Copies == 0 {
		return placement.Copies
	}
	return v.Copies
}

// wish keeps a version held for a while from now.
func (d *Dispatcher) wish(v *inference.Version) {
	now := d.cfg.Now()
	d.mu.Lock()
	var wake []domain.MachineID
	i := slices.IndexFunc(d.wishes, func(w wish) bool { return same(w.version, v) })
	switch {
	case i >= 0:
		d.wishes[i].until = now.Add(wishTime)
	case len(d.wishes) < maxWishes:
		d.wishes = append(d.wishes, wish{v, now.Add(wishTime)})
		d.planned = time.Time{}
		wake = d.plan(now)
	}
	d.mu.Unlock()
	for _, id := range wake {
		d.cfg.Wake(id)
	}
}

// Held says on which machines a version is ready now.
func (d *Dispatcher) Held(v *inference.Version) inference.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, now := membersOf(v), d.cfg.Now()
	h := inference.Held{Machines: []domain.MachineID{}, Models: len(all)}
	ready := make([]bool, len(all))
	for _, id := range d.ids() {
		p := d.peers[id]
		if !d.counts(p, now) {
			continue
		}
		if p.room > 0 && !p.leaving {
			h.Able++
		}
		holds := false
		for i, m := range all {
			if has, ok := p.holds[keyOf(v, m)]; ok && has.how == placement.Ready {
				ready[i], holds = true, true
			}
		}
		if holds {
			h.Machines = append(h.Machines, id)
		}
	}
	for _, is := range ready {
		if is {
			h.Ready++
		}
	}
	return h
}

func same(a, b *inference.Version) bool {
	return a == b || a.Model == b.Model && a.Run == b.Run && a.Weights == b.Weights && copiesOf(a) == copiesOf(b)
}

// standing says why a model is ready nowhere. Whoever asks for predictions may read it: it names no machine.
func (d *Dispatcher) standing(op string, k placement.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	machines, ready, loading, failed := 0, 0, 0, false
	for _, id := range d.ids() {
		p := d.peers[id]
		if !d.counts(p, now) || p.room == 0 {
			continue
		}
		machines++
		switch h, ok := p.holds[k]; {
		case ok && h.how == placement.Failed:
			failed = true
		case ok && h.how == placement.Ready:
			ready++
		case ok:
			loading++
		}
	}
	what := "the model"
	if k.Member > 0 {
		what = fmt.Sprintf("member %d", k.Member)
	}
	switch {
	case machines == 0:
		return domain.Unavailable(op, "no machine that may hold models is connected", "start agents: tensorturn agent start", nil)
	case ready > 0:
		return domain.Unavailable(op, "the machines that hold "+what+" have too much to do, or are loading it anew", "try again", nil)
	case loading > 0:
		return domain.Unavailable(op, what+" is still being loaded by the machines", "try again", nil)
	case failed:
		return domain.Unavailable(op, what+" could not be loaded by any machine", "see the log of the hub", nil)
	}
	return domain.Unavailable(op, "no machine has room for "+what, "start more agents, or retire models", nil)
}

// deserted reports whether there is no machine that could hold a model, and none is still coming back after a start of the hub.
func (d *Dispatcher) deserted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	for _, p := range d.peers {
		if d.counts(p, now) && p.room > 0 {
			return false
		}
	}
	return !d.gathers(now)
}

// failure is why a machine could not load a model, nil when none says so.
func (d *Dispatcher) failure(k placement.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.ids() {
		if h, ok := d.peers[id].holds[k]; ok && h.how == placement.Failed {
			return h.err
		}
	}
	return nil
}

// ids lists the peers in order.
func (d *Dispatcher) ids() []domain.MachineID {
	var out []domain.MachineID
	for id := range d.peers {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
