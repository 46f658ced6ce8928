// Package forecast reckons what a round of a fused run costs: bytes and seconds on the measured links, the share of its time that
// computes, and what would raise that share. The arithmetic is that of a hub and its spokes (DiLoCo's, with the hub's own links in it):
//
//	up   = P·b_up/8   bytes a slot sends      down = P·b_down/8   bytes a machine fetches
//	T_comm = max_i(up_i/U_i, Σup_i/D_hub) + max_i(down/D_i, K·down/U_hub)
//	T_c    = samples / Σ speed                CU = T_c / (T_c + T_comm)
//
// It is pure, measures nothing and decides nothing: broker/hub asks it for people.
package forecast

import (
	"cmp"
	"fmt"
	"math"

	"tensorturn/domain"
)

// Link is a way to the hub and back, in bytes per second; 0 is unknown.
type Link struct {
	Up   float64 `json:"up" doc:"bytes per second to the hub, 0 when unknown"`
	Down float64 `json:"down" doc:"bytes per second from the hub, 0 when unknown"`
}

// Worker is a machine that takes part.
type Worker struct {
	Name  string
	Slots int     // that take part
	Speed float64 // samples per second of all of them, 0 when unknown
	Link  Link
}

// Round is what is reckoned with.
type Round struct {
	Params   int64
	UpBits   float64 // of one parameter in a delta
	DownBits float64 // of one parameter in the weights that are fetched
	Options  []Option
	Samples  int64 // of a round
	Chunk    int64 // samples of a chunk
	Most     int64 // chunks that a round of the run can have, 0 when unknown: no longer one is advised
	Hub      Link  // the hub's own: what comes in on Up, what goes out on Down; 0 when unknown
	Workers  []Worker
}

// Option is another way to send what travels.
type Option struct {
	Name             string  // as it stands in a spec
	UpBits, DownBits float64 // 0 leaves them as they are
}

// Cost is what a round costs. Seconds are 0 where the figures they follow from are not known, and Unknown says which.
type Cost struct {
	Up       int64    `json:"up" doc:"bytes that each slot sends"`
	Down     int64    `json:"down" doc:"bytes that each machine fetches"`
	HubIn    int64    `json:"hubIn" doc:"bytes that the hub takes in"`
	HubOut   int64    `json:"hubOut" doc:"bytes that the hub sends"`
	Sending  float64  `json:"sendingSeconds" doc:"until the last delta is at the hub"`
	Fetching float64  `json:"fetchingSeconds" doc:"until the last machine has the new weights"`
	Training float64  `json:"trainingSeconds" doc:"of all slots together, 0 when unknown"`
	Share    float64  `json:"share" doc:"of a round's time that computes, 0 to 1; 0 when unknown"`
	Narrow   string   `json:"narrow,omitempty" doc:"the link that costs most of the time"`
	Unknown  []string `json:"unknown,omitempty"`
	Raise    []Advice `json:"raise,omitempty" doc:"what would raise the share"`
}

// Advice is one thing that would raise the share of time that computes.
type Advice struct {
	Text  string  `json:"text"`
	Share float64 `json:"share" doc:"what it would be, 0 when unknown"`
}

// Targets are the shares that people aim at (80, 90, 95 %: training must take 4, 9, 19 times as long as sending).
var targets = [...]float64{0.8, 0.9, 0.95}

// A change is advised when it raises the share by at least this much.
const worth = 0.01

// betterHub is how much faster a hub's link is tried when it is the narrow one: home against data centre.
const betterHub = 10

// Reckon gives the cost of a round.
func Reckon(r Round) Cost {
	c := r.cost()
	if len(r.Workers) == 0 {
		return c
	}
	c.Unknown = r.unknown()
	c.Raise = r.raise(&c)
	return c
}

// cost is Reckon without advice.
func (r *Round) cost() Cost {
	c := Cost{Up: bytesOf(r.Params, r.UpBits), Down: bytesOf(r.Params, r.DownBits)}
	speed := 0.0
	var up, down slowest
	for _, w := range r.Workers {
		mine := int64(w.Slots) * c.Up
		c.HubIn, c.HubOut = c.HubIn+mine, c.HubOut+c.Down
		up.see(mine, w.Link.Up, w.Name+"'s way up")
		down.see(c.Down, w.Link.Down, w.Name+"'s way down")
		speed += w.Speed
	}
	if len(r.Workers) > 1 { // the ends of one machine's link are one link
		up.see(c.HubIn, r.Hub.Up, hubIn)
		down.see(c.HubOut, r.Hub.Down, hubOut)
	}
	c.Sending, c.Fetching, c.Narrow = up.seconds, down.seconds, up.name
	if down.seconds > up.seconds {
		c.Narrow = down.name
	}
	if speed > 0 {
		c.Training = float64(r.Samples) / speed
	}
	c.Share = share(c.Training, c.Sending+c.Fetching)
	return c
}

// Names of the hub's links.
const (
	hubIn  = "the hub's way in"
	hubOut = "the hub's way out"
)

// slowest keeps the transfer that ends last.
type slowest struct {
	seconds float64
	name    string
}

func (s *slowest) see(bytes int64, rate float64, name string) {
	if rate <= 0 {
		return
	}
	if t := float64(bytes) / rate; t > s.seconds {
		s.seconds, s.name = t, name
	}
}

func bytesOf(params int64, bits float64) int64 { return int64(math.Ceil(float64(params) * bits / 8)) }

// share is 0 when one of its two is unknown.
func share(training, moving float64) float64 {
	if training <= 0 || moving <= 0 {
		return 0
	}
	return training / (training + moving)
}

// unknown lists what is missing from the figures.
func (r *Round) unknown() []string {
	var out []string
	if r.Params <= 0 {
		out = append(out, "how many parameters the model has: its first weights are not made yet")
	}
	var links, speeds int
	for _, w := range r.Workers {
		if w.Link.Up <= 0 || w.Link.Down <= 0 {
			links++
		}
		if w.Speed <= 0 {
			speeds++
		}
	}
	if links > 0 {
		out = append(out, fmt.Sprintf("the links of %d of %d machines: tensorturn machine bench", links, len(r.Workers)))
	}
	if speeds > 0 {
		out = append(out, fmt.Sprintf("the speed of %d of %d machines: it is measured as they train", speeds, len(r.Workers)))
	}
	return out
}

// raise tries each change alone.
func (r *Round) raise(c *Cost) []Advice {
	moving := c.Sending + c.Fetching
	if moving <= 0 || r.Params <= 0 {
		return nil
	}
	var out []Advice
	add := func(next Round, format string, args ...any) {
		n := next.cost()
		if c.Share == 0 && n.Sending+n.Fetching < moving*(1-worth) || n.Share >= c.Share+worth {
			text := fmt.Sprintf(format, args...) + fmt.Sprintf(": %s of transfers a round instead of %s", seconds(n.Sending+n.Fetching), seconds(moving))
			out = append(out, Advice{Text: text, Share: n.Share})
		}
	}
	out = append(out, r.longer(c)...)
	for _, o := range r.Options {
		next := *r
		next.UpBits, next.DownBits = cmp.Or(o.UpBits, r.UpBits), cmp.Or(o.DownBits, r.DownBits)
		add(next, "%s", o.Name)
	}
	if c.Narrow == hubIn || c.Narrow == hubOut {
		next := *r
		next.Hub = Link{Up: betterHub * r.Hub.Up, Down: betterHub * r.Hub.Down}
		add(next, "a hub whose link is %d times as fast (%s is the narrow one)", betterHub, c.Narrow)
	}
	return append(out, r.without(c)...)
}

// longer says how long a round must be for the next targets.
func (r *Round) longer(c *Cost) []Advice {
	moving := c.Sending + c.Fetching
	for _, t := range targets {
		if c.Share >= t {
			continue
		}
		need := t / (1 - t) * moving
		if c.Training <= 0 {
			return []Advice{{Text: fmt.Sprintf("rounds that train for %s or more", seconds(need)), Share: t}}
		}
		chunks := int64(math.Ceil(need/c.Training*float64(r.Samples)/float64(max(r.Chunk, 1)) - 1e-6)) // the target itself is no whole number
		if r.Most > 0 && chunks > r.Most {
			return nil // nor is there one for the targets beyond
		}
		return []Advice{{Text: fmt.Sprintf("round: {chunks: %d} or more: rounds that train for %s instead of %s", chunks, seconds(need), seconds(c.Training)), Share: t}}
	}
	return nil
}

// without tries the run without the machine whose link is the narrow one: it pays when the others get more done in the same time.
func (r *Round) without(c *Cost) []Advice {
	if len(r.Workers) < 2 || c.Share == 0 {
		return nil
	}
	for i, w := range r.Workers {
		if c.Narrow != w.Name+"'s way up" && c.Narrow != w.Name+"'s way down" {
			continue
		}
		next := *r
		next.Workers = append(append([]Worker(nil), r.Workers[:i]...), r.Workers[i+1:]...)
		n := next.cost()
		now, then := pace(r.Samples, c), pace(r.Samples, &n)
		if n.Share > c.Share && then > now*(1+worth) {
			return []Advice{{Text: fmt.Sprintf("without %s, whose link is the narrow one: %s samples/s instead of %s", w.Name, domain.Figure(then), domain.Figure(now)), Share: n.Share}}
		}
	}
	return nil
}

// pace is how many samples a second the run trains, transfers included.
func pace(samples int64, c *Cost) float64 {
	t := c.Training + c.Sending + c.Fetching
	if t <= 0 {
		return 0
	}
	return float64(samples) / t
}

// Lines say the cost for people.
func (c *Cost) Lines() []string {
	if c.Up == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("each slot sends %s and each machine fetches %s; the hub takes in %s and sends %s",
		domain.FormatSize(uint64(c.Up)), domain.FormatSize(uint64(c.Down)), domain.FormatSize(uint64(c.HubIn)), domain.FormatSize(uint64(c.HubOut)))}
	if moving := c.Sending + c.Fetching; moving > 0 {
		out = append(out, fmt.Sprintf("%s to send and %s to fetch; %s is the narrow link", seconds(c.Sending), seconds(c.Fetching), c.Narrow))
	}
	if c.Training > 0 {
		out = append(out, fmt.Sprintf("%s to train", seconds(c.Training)))
	}
	return out
}

// seconds says a time for people.
func seconds(s float64) string {
	switch {
	case s >= 5400:
		return domain.Figure(s/3600) + " h"
	case s >= 180:
		return domain.Figure(s/60) + " min"
	case s < 0.001: // below a message's own way: digits would say nothing
		return "under 1 ms"
	case s < 1:
		return domain.Figure(s*1000) + " ms"
	}
	return domain.Figure(s) + " s"
}
