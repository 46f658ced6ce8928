package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/hub"
	"tensorturn/broker/snapshot"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// corruption changes bytes of a stopped hub's folder at random, one place at a time on a fresh copy, starts the hub's own code
// on it, and judges the outcome. Two fifths of the changes are in events, three tenths in live blobs, a tenth in what the server
// writes before each record of any stream, and the rest anywhere.
func corruption(o options, bin string) error {
	return kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		p := w.patient()
		p.seed = o.seed
		out := map[string]int{}
		var first []string
		began := time.Now()
		far := newProgress("corruption")
		for i := range o.changes {
			far.tell("%d of %d changes", i, o.changes)
			what, verdict, why := p.change(i)
			out[what+" "+verdict]++
			if verdict == "WRONG" {
				first = append(first, fmt.Sprintf("change %d: %s", i, why))
			}
		}
		fmt.Printf("%d random changes of stored bytes in %.0f s (%d events, %d live blobs):\n", o.changes, time.Since(began).Seconds(), len(p.events), len(p.blobs))
		for _, k := range slices.Sorted(maps.Keys(out)) {
			fmt.Printf("  %-40s %d\n", k, out[k])
		}
		for _, f := range first[:min(len(first), 10)] {
			fmt.Println("  ", f)
		}
		if len(first) > 0 {
			b.Errorf("%d changes were answered with something wrong", len(first))
		}
		// The control: without the chain and the digests, what is read is what is there.
		blind := 0
		for i := range min(o.changes, 60) {
			p.blind = true
			if _, verdict, _ := p.change(i); verdict == "WRONG" {
				blind++
			}
		}
		fmt.Printf("control, 60 of the same changes with nothing known from outside and no chain checked: %d answered wrongly\n", blind)
		if blind == 0 {
			b.Errorf("the control finds nothing wrong: the experiment shows nothing")
		}
	})
}

// seen is what the hub's code makes of a store.
type seen struct {
	bad    error // what start or verification found
	events []event.Envelope
	ids    []string
	state  string
	gone   []domain.Digest // live objects that cannot be read
}

// look starts the hub's own service on the store at dir, lets it verify everything, and reads all there is.
func (p *patient) look(dir string) (out seen, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	store, err := offline.Open(ctx, dir)
	if err != nil {
		return out, err
	}
	defer store.Close()
	snaps, err := snapshot.Open(filepath.Join(dir, "snapshots"), p.keys.Snapshots())
	if err != nil {
		return out, err
	}
	s := hub.NewService(hub.ServiceConfig{Core: hub.Config{Timing: domain.TimingOf(lease), Process: "p", Known: p.known}, Log: store.Log, Registry: offline.Registry(),
		Blobs: store.Blobs, Heads: p.keys.Heads(), Snapshots: snaps, Version: "faults", Logger: zerolog.Nop()})
	if err := s.Start(ctx); err != nil {
		return out, err
	}
	last, err := store.Log.Last(ctx)
	if err == nil {
		for s.ReadOnly() == nil && s.Verified() < last && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
	}
	out.bad = s.ReadOnly()
	if err := s.Read(ctx, func(c *hub.Core) { out.state = stateText(c) }); err != nil {
		return out, err
	}
	s.Stop()
	_, _, bad := store.Verify(ctx, map[uint64]domain.Digest{p.known.Seq: p.known.Digest}, func(e event.Envelope) {
		out.events = append(out.events, e)
		out.ids = append(out.ids, fmt.Sprintf("%d %s %s", e.Seq, e.ID, e.Prev))
	})
	if out.bad == nil {
		out.bad = bad
	}
	for _, d := range p.blobs {
		if _, err := store.Blobs.Get(ctx, d); err != nil {
			out.gone = append(out.gone, d)
		}
	}
	return out, nil
}

// stateText is what has been decided of every run.
func stateText(c *hub.Core) string {
	var all []any
	for _, id := range c.Runs() {
		all = append(all, c.Run(id))
	}
	for _, id := range c.Machines() {
		m, _ := c.Machine(id)
		all = append(all, m)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// change makes the i-th change and judges what comes of it.
func (p *patient) change(i int) (what, verdict, why string) {
	rng := rand.New(rand.NewPCG(uint64(i), p.seed))
	dir, err := os.MkdirTemp("", "tensorturn-change-")
	p.w.Must(err)
	defer os.RemoveAll(dir)
	p.w.Must(offline.CopyTree(p.dir, dir))
	if rng.IntN(2) == 0 { // as after a crash: without the index, and without the frozen state
		matches, _ := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "index.db"))
		for _, m := range matches {
			_ = os.Remove(m)
		}
		_ = os.RemoveAll(filepath.Join(dir, "snapshots"))
	}
	target, at := p.aim(rng, dir)
	did := p.damage(rng, target.file, at)
	if p.blind {
		return p.blindly(dir, did)
	}
	got, err := p.look(dir)
	return target.what, p.judge(target, got, err, did), did
}

// aimed is where a change goes.
type aimed struct {
	what, file string
	place      place
}

// aim draws a place.
func (p *patient) aim(rng *rand.Rand, dir string) (aimed, int64) {
	draw := rng.IntN(10)
	if draw < 8 {
		var all []aimed
		for _, f := range p.files {
			for _, x := range p.places[f] {
				if draw < 7 && (draw < 4) == (x.seq > 0) {
					all = append(all, aimed{kind(x), filepath.Join(dir, f), x})
				}
			}
			for _, x := range p.heads[f] {
				if draw == 7 {
					all = append(all, aimed{"record's head", filepath.Join(dir, f), x})
				}
			}
		}
		a := all[rng.IntN(len(all))]
		return a, a.place.from + rng.Int64N(a.place.to-a.place.from)
	}
	for {
		f := p.files[rng.IntN(len(p.files))]
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil || info.Size() == 0 {
			continue
		}
		at := rng.Int64N(info.Size())
		a := aimed{what: "elsewhere", file: filepath.Join(dir, f)}
		for _, x := range p.places[f] {
			if at >= x.from && at < x.to {
				a.place, a.what = x, kind(x)
			}
		}
		return a, at
	}
}

// kind is what lies at the place of a record or an object.
func kind(x place) string {
	if x.seq > 0 {
		return "event"
	}
	return "live blob"
}

// damage changes a byte, some bytes, or cuts the file, and says what it did.
func (p *patient) damage(rng *rand.Rand, file string, at int64) string {
	b, err := os.ReadFile(file)
	p.w.Must(err)
	name := file[strings.Index(file, "change-"):]
	switch draw := rng.IntN(10); {
	case draw < 7:
		b[at] ^= byte(1 + rng.IntN(255))
		p.w.Must(os.WriteFile(file, b, 0o600))
		return fmt.Sprintf("byte %d of %s", at, name)
	case draw < 9:
		n := min(int64(2+rng.IntN(62)), int64(len(b))-at)
		before := bytes.Clone(b[at : at+n])
		for i := range n {
			b[at+i] = byte(rng.IntN(256))
		}
		if bytes.Equal(before, b[at:at+n]) {
			b[at] ^= 1
		}
		p.w.Must(os.WriteFile(file, b, 0o600))
		return fmt.Sprintf("%d bytes at %d of %s", n, at, name)
	}
	p.w.Must(os.Truncate(file, at))
	return fmt.Sprintf("%s cut at %d of %d", name, at, len(b))
}

// judge compares what was seen with what must be.
func (p *patient) judge(a aimed, got seen, err error, did string) string {
	if err != nil {
		return "refused at start" // nothing is answered at all
	}
	if got.bad != nil {
		seq, ok := event.FirstBad(got.bad)
		var own *domain.Error
		if !errors.As(got.bad, &own) {
			return "WRONG"
		}
		if a.what == "event" && (!ok || seq != a.place.seq && !strings.Contains(did, "cut") && seq > a.place.seq) {
			return "WRONG"
		}
		if a.what == "event" && seq == a.place.seq {
			return "detected, named exactly"
		}
		return "detected"
	}
	same := slices.Equal(got.ids, p.ids) && got.state == p.state
	switch {
	case a.what == "event", !same:
		return "WRONG"
	case a.what == "live blob" && !slices.Contains(got.gone, a.place.blob):
		return "WRONG"
	case a.what == "live blob":
		return "detected, named exactly"
	case len(got.gone) > 0:
		return "detected: objects named"
	}
	return "rebuilt to equal state"
}

// blindly reads without the chain and without what is known from outside: what a plain JetStream would have answered.
func (p *patient) blindly(dir, did string) (what, verdict, why string) {
	store, err := offline.Open(context.Background(), dir)
	if err != nil {
		return "blind", "refused at start", did
	}
	defer store.Close()
	n := 0
	for rec, err := range store.Log.Read(context.Background(), 1) {
		if err != nil {
			break // a gap that the reader sees is hidden by a plain consumer: it goes on behind it
		}
		n++
		_ = rec
	}
	if n != len(p.ids) {
		return "blind", "WRONG", did
	}
	return "blind", "same", did
}
