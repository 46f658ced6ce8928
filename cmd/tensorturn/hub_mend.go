package main

import (
	"context"
	"fmt"
)

// mendCut takes out of the log what is there of a batch that a crash or a power cut left stored in part: it was acknowledged to nobody, and
// a hub that waited for its owner would lose the night. It is what log repair does with the folder alone, under the same
// rule: if the position kept beside the store, at most a second old, lies behind the new end, nothing is changed. Then, and when the repair fails for
// any other reason, the hub starts as it always did on a damaged log: read-only.
func (h *hubProcess) mendCut(ctx context.Context) error {
	cut := h.store.Log.Cut()
	if cut.Last == 0 {
		return nil
	}
	log := h.opts.logger
	log.Warn().Uint64("first", cut.First).Uint64("last", cut.Last).Msg("the log ends within a batch that was being stored; taking it out")
	if err := h.stopLast(); err != nil { // the broker: the repair takes its place at the store
		return fmt.Errorf("stop the store for its repair: %w", err)
	}
	r, err := repairWith(ctx, h.keys, h.url, repairOptions{dir: h.opts.dir, maxStore: h.opts.maxStore})
	if err == nil {
		log.Warn().Uint64("records", r.Records).Str("kept", r.Damaged).Msg("the log was repaired: nobody had been told of what was taken out; the old one is kept")
	} else if ctx.Err() == nil {
		log.Error().Err(err).Msg("the log could not be repaired")
	}
	return h.startBroker(ctx)
}

// stopLast takes down what was started last.
func (h *hubProcess) stopLast() error {
	last := len(h.stops) - 1
	stop := h.stops[last]
	h.stops = h.stops[:last]
	return stop()
}
