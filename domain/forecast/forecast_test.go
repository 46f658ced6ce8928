package forecast_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"tensorturn/domain/forecast"
)

const mbit = 1e6 / 8 // bytes per second

// pool is K = 4 workers of 20/100 Mbit/s.
func pool(params int64, up, down float64, hub forecast.Link) forecast.Round {
	r := forecast.Round{Params: params, UpBits: up, DownBits: down, Hub: hub, Samples: 1000, Chunk: 10}
	for i := range 4 {
		r.Workers = append(r.Workers, forecast.Worker{Name: fmt.Sprint("m", i), Slots: 1, Link: forecast.Link{Up: 20 * mbit, Down: 100 * mbit}})
	}
	return r
}

// TestTable holds the arithmetic against the table it was taken from: the training time of a round that makes 90 % of it computing.
func TestTable(t *testing.T) {
	home, office := forecast.Link{Up: 100 * mbit, Down: 20 * mbit}, forecast.Link{Up: 1000 * mbit, Down: 1000 * mbit}
	for _, tc := range []struct {
		params   int64
		up, down float64
		hub      forecast.Link
		want     float64 // seconds
	}{
		{1e6, 32, 32, home, 72}, {1e6, 32, 32, office, 17}, {1e6, 4.125, 8.125, home, 16}, {1e6, 4.125, 8.125, office, 3},
		{10e6, 32, 32, home, 12 * 60}, {10e6, 32, 32, office, 173}, {10e6, 8.125, 16, home, 325}, {10e6, 8.125, 16, office, 51},
		{10e6, 4.125, 8.125, home, 165}, {10e6, 4.125, 8.125, office, 26}, {100e6, 32, 32, home, 2 * 3600}, {100e6, 32, 32, office, 29 * 60},
		{100e6, 4.125, 8.125, home, 27 * 60}, {100e6, 4.125, 8.125, office, 259}, {100e6, 4.125, 4.125, home, 15 * 60}, {100e6, 4.125, 4.125, office, 223},
		{1e9, 4.125, 8.125, home, 4.6 * 3600}, {1e9, 4.125, 8.125, office, 43 * 60},
	} {
		c := forecast.Reckon(pool(tc.params, tc.up, tc.down, tc.hub))
		if got := 9 * (c.Sending + c.Fetching); math.Abs(got-tc.want) > max(0.05*tc.want, 0.6) {
			t.Errorf("%g parameters, %g up, %g down: %.0f s, the table says %.0f", float64(tc.params), tc.up, tc.down, got, tc.want)
		}
	}
}

// TestAdvice reads what would raise the share, and that each figure is what the changed run really gives.
func TestAdvice(t *testing.T) {
	r := pool(10e6, 32, 32, forecast.Link{Up: 100 * mbit, Down: 20 * mbit})
	for i := range r.Workers {
		r.Workers[i].Speed = 5
	}
	r.Options = []forecast.Option{{Name: "codec: e3m0", UpBits: 4.125}, {Name: "codec_down: int8", DownBits: 8.125}}
	c := forecast.Reckon(r)
	if c.Training != 50 || math.Abs(c.Share-50.0/130) > 1e-9 || c.Narrow != "the hub's way out" {
		t.Fatalf("%+v", c)
	}
	var got []string
	for _, a := range c.Raise {
		got = append(got, fmt.Sprintf("%.0f %%: %s", 100*a.Share, a.Text))
	}
	want := `80 %: round: {chunks: 640} or more: rounds that train for 5.33 min instead of 50 s
43 %: codec: e3m0: 66.1 s of transfers a round instead of 80 s
61 %: codec_down: int8: 32.3 s of transfers a round instead of 80 s
69 %: a hub whose link is 10 times as fast (the hub's way out is the narrow one): 22.4 s of transfers a round instead of 80 s`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("advice:\n%s\nwant:\n%s", s, want)
	}
	longer := r
	longer.Samples = 640 * r.Chunk
	if n := forecast.Reckon(longer); n.Share < 0.8 {
		t.Errorf("rounds of 640 chunks compute %.3f of the time", n.Share)
	}
}

// TestLongestRound advises a round that a run can have, and says nothing of one that it cannot.
func TestLongestRound(t *testing.T) {
	for most, want := range map[int64]bool{0: true, 640: true, 639: false} {
		r := pool(10e6, 32, 32, forecast.Link{Up: 100 * mbit, Down: 20 * mbit})
		for i := range r.Workers {
			r.Workers[i].Speed = 5
		}
		r.Most = most
		advised := false
		for _, a := range forecast.Reckon(r).Raise {
			advised = advised || strings.HasPrefix(a.Text, "round: {chunks: 640}")
		}
		if advised != want {
			t.Errorf("at most %d chunks: a round of 640 is advised: %v", most, advised)
		}
	}
}

// TestSlowLink is advised to go without when the others do more in the same time, and not when its slots are worth the wait.
func TestSlowLink(t *testing.T) {
	advised := func(slow float64, samples int64) bool {
		r := pool(1e6, 4.125, 4.125, forecast.Link{Up: 1000 * mbit, Down: 1000 * mbit})
		r.Samples = samples
		for i := range r.Workers {
			r.Workers[i].Speed = 10
		}
		r.Workers[3].Link, r.Workers[3].Name, r.Workers[3].Speed = forecast.Link{Up: 0.1 * mbit, Down: 1 * mbit}, "attic", slow
		for _, a := range forecast.Reckon(r).Raise {
			if strings.HasPrefix(a.Text, "without attic") {
				return true
			}
		}
		return false
	}
	if !advised(1, 1000) || advised(200, 100_000) {
		t.Errorf("advised to go without a slow link: of a slow slot %v, of a fast one in a long round %v", advised(1, 1000), advised(200, 100_000))
	}
}

// TestUnknown says what is missing and never gives a share that nothing follows from.
func TestUnknown(t *testing.T) {
	r := pool(0, 32, 32, forecast.Link{})
	r.Workers[0].Link = forecast.Link{}
	c := forecast.Reckon(r)
	if c.Share != 0 || len(c.Raise) != 0 || len(c.Unknown) != 3 || c.Lines() != nil {
		t.Errorf("%+v", c)
	}
	if c := forecast.Reckon(forecast.Round{Params: 10, UpBits: 32, DownBits: 32}); c.Up != 40 || c.HubIn != 0 || c.Share != 0 {
		t.Errorf("a pool without machines: %+v", c)
	}
	r.Params, r.Workers = 1e6, r.Workers[1:2]
	if c := forecast.Reckon(r); len(c.Raise) != 1 || c.Raise[0].Share != 0.8 || !strings.HasPrefix(c.Raise[0].Text, "rounds that train for") {
		t.Errorf("one machine of unknown speed: %+v", c)
	}
}
