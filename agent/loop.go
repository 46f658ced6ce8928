package agent

import (
	"context"
	"time"

	"tensorturn/domain"
)

// loop owns Core until it says Exit or ctx ends, and returns Exit's reason.
func (a *Agent) loop(ctx context.Context) string {
	defer func() {
		if a.cancelSync != nil {
			a.cancelSync()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var now time.Duration
	in := Input(Tick{})
	for {
		now = max(now, a.clock()) // a clock that was set back stands still
		for _, e := range a.core.Step(now, in) {
			if exit, ok := e.(Exit); ok {
				a.cfg.Log.Info().Str("reason", exit.Reason).Msg("agent ends")
				return exit.Reason
			}
			a.dispatch(ctx, e)
		}
		timer.Reset(max(0, a.core.Next()-a.clock()))
		select {
		case in = <-a.inputs:
		case <-a.wake:
			in = Woken{}
		case <-a.drain:
			in = StopRequested{}
		case <-timer.C:
			in = Tick{}
		case <-ctx.Done():
			return ""
		}
	}
}

// dispatch hands an effect to whoever performs it. It never waits.
func (a *Agent) dispatch(ctx context.Context, e Effect) {
	switch e := e.(type) {
	case SendSync:
		a.sendSync(ctx, e)
	case UploadAgain:
		a.resends.push(e.Blob)
	case DropDeltas, SaveHead, SaveCredential:
		a.chores.push(e)
	case Abandon:
		a.cfg.Log.Debug().Int("slot", e.Slot).Uint64("epoch", uint64(e.Epoch)).Msg("lease ended")
		a.workers[e.Slot].abandon(e.Epoch, e.Keep)
	case CloseTrainer:
		a.workers[e.Slot].submit(ctx, 0, e)
	case Prepare:
		a.cfg.Log.Debug().Int("slot", e.Slot).Str("run", string(e.Run)).Str("unit", string(e.Unit)).Uint64("epoch", uint64(e.Epoch)).Msg("lease adopted")
		a.workers[e.Slot].submit(ctx, e.Epoch, e)
	default:
		slot, epoch := target(e)
		a.workers[slot].submit(ctx, epoch, e)
	}
}

// target says which slot and epoch an effect is for.
func target(e Effect) (int, domain.Epoch) {
	switch e := e.(type) {
	case Train:
		return e.Slot, e.Epoch
	case MakeDelta:
		return e.Slot, e.Epoch
	case Upload:
		return e.Slot, e.Epoch
	case Reset:
		return e.Slot, e.Epoch
	case RunInit:
		return e.Slot, e.Epoch
	case RunEvaluate:
		return e.Slot, e.Epoch
	case KeepMember:
		return e.Slot, e.Epoch
	case FinishMember:
		return e.Slot, e.Epoch
	case PredictMember:
		return e.Slot, e.Epoch
	}
	panic("broken promise: an effect of no slot")
}

// sendSync replaces a sync that Core has given up by the next one.
func (a *Agent) sendSync(ctx context.Context, e SendSync) {
	if a.cancelSync != nil {
		a.cancelSync()
	}
	ctx, a.cancelSync = context.WithTimeout(ctx, maxTimeout)
	select {
	case a.syncs <- pendingSync{ctx: ctx, request: e.Request}:
	default: // the talker has not yet noticed the end of the last one: Core will ask again
	}
}
