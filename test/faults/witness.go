package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tensorturn/broker/gateway"
)

// witness stands outside the hub and writes down every event it is told, over every restart of the hub: what it has heard
// was acknowledged, and must be in the log for ever.
type witness struct {
	w    *world
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	heard map[uint64]string // sequence to event id
	at    map[uint64]time.Time
	last  uint64
}

// watch begins to listen; the bed ends it.
func watch(w *world) *witness {
	v := &witness{w: w, stop: make(chan struct{}), done: make(chan struct{}), heard: map[uint64]string{}, at: map[uint64]time.Time{}}
	go v.run()
	w.Bed.Cleanup(func() { close(v.stop); <-v.done })
	return v
}

func (v *witness) run() {
	defer close(v.done)
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		v.listen()
		select {
		case <-v.stop:
			return
		case <-retry.C:
		}
	}
}

// listen hears one stream to its end.
func (v *witness) listen() {
	v.mu.Lock()
	after := v.last
	v.mu.Unlock()
	body, err := v.w.Stream(fmt.Sprintf("/api/v1/events?after=%d&follow=true", after))
	if err != nil {
		return
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-v.stop:
		case <-ended:
		}
		body.Close()
	}()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			ID       string `json:"id"`
			Sequence string `json:"sequence"`
		}
		if json.Unmarshal([]byte(data), &e) != nil || e.ID == "" {
			continue
		}
		var seq uint64
		var err error
		if seq, err = strconv.ParseUint(e.Sequence, 10, 64); err != nil {
			continue
		}
		v.mu.Lock()
		v.heard[seq], v.at[seq], v.last = e.ID, time.Now(), max(v.last, seq)
		v.mu.Unlock()
	}
}

func (v *witness) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.heard)
}

// times lists what was heard and when.
func (v *witness) times() []heardAt {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []heardAt
	for seq, id := range v.heard {
		out = append(out, heardAt{seq, id, float64(v.at[seq].UnixMicro()) / 1e6})
	}
	return out
}

// notes is what was heard so far.
func (v *witness) notes() map[uint64]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.heard)
}

// missing lists what was heard and is not in the log, in order.
func missing(heard map[uint64]string, log []gateway.LogRecord) []string {
	stored := make(map[uint64]string, len(log))
	for _, r := range log {
		stored[r.Seq] = r.ID
	}
	var lost []string
	for _, seq := range slices.Sorted(maps.Keys(heard)) {
		if id := heard[seq]; stored[seq] != id {
			lost = append(lost, fmt.Sprintf("%d (%s), the log ends at %d", seq, id, len(log)))
		}
	}
	return lost
}
