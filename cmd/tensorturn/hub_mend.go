package main

import (
	"context"
	"fmt"
	"path/filepath"

	"tensorturn/domain"
)

// mendCut takes out of the log what is there of a batch that a crash or a power cut left stored in part: it was acknowledged to nobody, and
// a hub that waited for its owner would lose the night. It is what log repair does with the folder alone, under stricter rules: nothing else
// is missing; the position kept beside the store, at most a second old, is there, is this hub's, and lies before the cut; and no observer was told
// of more. If one of them does not hold, or the repair fails, the hub starts as it does on any damaged log: read-only.
func (h *hubProcess) mendCut(ctx context.Context) error {
	cut := h.store.Log.Cut()
	if cut.Last == 0 {
		return nil
	}
	log := h.opts.logger
	if kept := h.knownHead(); kept.Seq == 0 || kept.Seq >= cut.First || h.feedAhead(ctx, cut.First-1) != nil {
		log.Error().Uint64("first", cut.First).Uint64("last", cut.Last).Msg("the log ends within a batch that may have been told: it is left as it is")
		return nil
	}
	log.Warn().Uint64("first", cut.First).Uint64("last", cut.Last).Msg("the log ends within a batch that was being stored; taking it out")
	if err := h.stopLast(); err != nil { // the broker: the repair takes its place at the store
		return fmt.Errorf("stop the store for its repair: %w", err)
	}
	r, err := repairWith(ctx, h.keys, h.url, repairOptions{dir: h.opts.dir, maxStore: h.opts.maxStore, exactly: cut.First - 1})
	if err == nil {
		log.Warn().Uint64("records", r.Records).Str("kept", r.Damaged).Msg("the log was repaired: nobody had been told of what was taken out; the old one is kept")
	} else if ctx.Err() == nil {
		log.Error().Err(err).Msg("the log could not be repaired")
	}
	return h.startBroker(ctx)
}

// finishRepair puts the result of a repair in its place that was killed just before.
func (h *hubProcess) finishRepair(context.Context) error {
	r := &repairer{keys: h.keys, tmp: filepath.Join(h.opts.dir, workName), opts: repairOptions{dir: h.opts.dir}}
	if err := r.finish(); err != nil {
		return domain.Unavailable("finish the repair of the log", plainPathError(err), "see what is in "+r.tmp, nil)
	}
	return nil
}

// stopLast takes down what was started last.
func (h *hubProcess) stopLast() error {
	last := len(h.stops) - 1
	stop := h.stops[last]
	h.stops = h.stops[:last]
	return stop()
}
