package outsiders

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/test/kit"
)

// TestFeedIsRebuilt takes the feed away from a stopped hub, damages the new one, and what is kept of its observers: each time the hub makes it again from
// the log, with the same events under the same ids at the same places, no gap and no double. An observer that begins in its
// middle still does.
func TestFeedIsRebuilt(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a")
	p.AwaitEnd(p.Submit(spec(t, 1)))
	want := truth(t, p)
	begin := want[len(want)/2].Sequence
	before := byPlace(newObserver(t, p).read(t).await(t, len(want)))
	half := newObserver(t, p, "--from", strings.TrimLeft(begin, "0"))
	for name, harm := range map[string]func(){
		"gone": func() {
			dirs, err := filepath.Glob(filepath.Join(p.HubDir(), "store", "jetstream", "*", "streams", "FEED"))
			if err != nil || len(dirs) != 1 {
				t.Fatal(dirs, err)
			}
			if err := os.RemoveAll(dirs[0]); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func() {
			block := p.Blocks("FEED")[0]
			info, err := os.Stat(block)
			if err != nil {
				t.Fatal(err)
			}
			p.Flip(block, info.Size()/2, 1)
		},
		"unreadable for its consumers": func() { // the server would not give the stream at all
			configs, err := filepath.Glob(filepath.Join(p.HubDir(), "store", "jetstream", "*", "streams", "FEED", "obs", "*", "meta.inf"))
			if err != nil || len(configs) < 2 {
				t.Fatal(configs, err)
			}
			for i, c := range configs {
				if i%2 == 0 {
					p.Flip(c, 3, 1)
				} else {
					p.Flip(filepath.Join(filepath.Dir(c), "o.dat"), 0, 1)
				}
			}
		},
	} {
		if code := p.Hub.Stop(kit.Patience); code != 0 {
			t.Errorf("the hub ended with %d", code)
		}
		harm()
		p.StartHub()
		want = truth(t, p)
		got := newObserver(t, p).read(t).await(t, len(want))
		compare(t, "feed that was "+name, got, want)
		after := byPlace(got)
		for place, id := range before {
			if after[place] != id {
				t.Errorf("%s: place %d has %s, had %s", name, place, after[place], id)
			}
		}
		if len(after) != len(want) {
			t.Errorf("%s: %d places for %d events", name, len(after), len(want))
		}
	}
	var rest []cloudEvent // what happened behind its place
	for _, e := range want {
		if e.Sequence >= begin {
			rest = append(rest, e)
		}
	}
	got := half.read(t).await(t, len(rest))
	if compare(t, "observer of the second half", got, rest); got[0].ID != rest[0].ID {
		t.Errorf("it begins with %s, want %s", got[0].Sequence, rest[0].Sequence)
	}
}

// byPlace gives the ids of events by their place in the feed.
func byPlace(es []cloudEvent) map[uint64]string {
	out := map[uint64]string{}
	for _, e := range es {
		out[e.place] = e.ID
	}
	return out
}
