// Package timeline is the view of what happened, one line an event, newest last, bounded for each run and for the pool.
// The whole story is in the log; the timeline is for following and for the last screenful.
package timeline

import (
	"sync"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// MaxLines bounds what is kept for each aggregate kind and id.
const MaxLines = 2000

// Line is one event for people.
type Line struct {
	Seq  uint64     `json:"seq"`
	Time time.Time  `json:"time"`
	Kind event.Kind `json:"kind"`
	ID   string     `json:"id"`
	Name string     `json:"name"`
	By   string     `json:"by"`
	Text string     `json:"text"`
}

// View holds the lines of runs, and those of machines and the pool together under the empty id. Lines are rendered when
// they are first asked for: of a log of a million events that is replayed at start, few ever are.
type View struct {
	mu     sync.Mutex // readers render too, side by side
	lines  map[domain.RunID][]Line
	untold map[domain.RunID][]event.Envelope // what follows them, not rendered yet
}

// New returns an empty view.
func New() *View {
	return &View{lines: map[domain.RunID][]Line{}, untold: map[domain.RunID][]event.Envelope{}}
}

// Name names the view.
func (v *View) Name() string { return "timeline" }

// Part names what the view holds, for snapshots. Until the next Apply nobody changes it: all is rendered.
func (v *View) Part() freeze.Part {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.untold {
		v.tell(id)
	}
	return freeze.Part{Name: v.Name(), Values: []any{&v.lines}}
}

// LineOf renders an event.
func LineOf(e event.Envelope) Line {
	return Line{Seq: e.Seq, Time: e.Time, Kind: e.Kind, ID: e.Agg, Name: e.Data.EventName(), By: string(e.Actor), Text: e.Data.Line()}
}

// Apply adds the event's line.
func (v *View) Apply(e event.Envelope) {
	id := domain.RunID("")
	if e.Kind == event.KindRun {
		id = domain.RunID(e.Agg)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.untold[id] = append(v.untold[id], e)
	if told, all := v.lines[id], len(v.lines[id])+len(v.untold[id]); all >= 2*MaxLines { // cut in large steps, so that adding stays cheap
		cut := min(all-MaxLines, len(told))
		v.lines[id] = append([]Line(nil), told[cut:]...)
		v.untold[id] = append([]event.Envelope(nil), v.untold[id][all-MaxLines-cut:]...)
	}
}

// tell renders what is not yet.
func (v *View) tell(id domain.RunID) {
	for _, e := range v.untold[id] {
		v.lines[id] = append(v.lines[id], LineOf(e))
	}
	delete(v.untold, id)
}

// Since copies at most limit lines of the run (or of the pool, for the empty id) behind sequence after, oldest first.
func (v *View) Since(id domain.RunID, after uint64, limit int) []Line {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tell(id)
	l := v.lines[id]
	from := len(l)
	for from > 0 && l[from-1].Seq > after {
		from--
	}
	l = l[from:]
	if len(l) > limit {
		l = l[:limit]
	}
	return append([]Line{}, l...)
}
