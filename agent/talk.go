package agent

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// quietStart is how long failures of the first contact are no news: the link comes up behind the agent.
const quietStart = 30 * time.Second

// talk carries syncs to the hub, one at a time.
func (a *Agent) talk(ctx context.Context) {
	c := complaints{log: a.cfg.Log, quiet: a.clock() + quietStart}
	for {
		select {
		case s := <-a.syncs:
			reply, err := a.exchange(s)
			if ctx.Err() == nil {
				c.hear(a.clock(), reply, err, a.cfg.Transport.Connected())
			}
			if err != nil {
				a.post(ctx, SyncFailed{Counter: s.request.Counter})
				continue
			}
			a.post(ctx, Replied{Counter: s.request.Counter, Reply: reply})
		case <-ctx.Done():
			return
		}
	}
}

// complaints logs what syncs say: a lasting failure once, at debug while a first contact may still be on its way.
type complaints struct {
	log   zerolog.Logger
	quiet time.Duration // failures before this time, and before the first contact, are no news
	met   bool          // there has been contact
	last  string        // the newest complaint that was logged, or ""
}

func (c *complaints) hear(now time.Duration, reply *wire.SyncReply, err error, connected bool) {
	said := ""
	switch {
	case err != nil:
		said = err.Error()
	case reply.Error != nil:
		said = reply.Error.Why
	}
	if err != nil && !c.met && now < c.quiet {
		c.log.Debug().Str("err", said).Bool("connected", connected).Msg("no contact yet")
		return // not kept: should it last, it is told when the quiet time is over
	}
	c.met = c.met || err == nil
	if said != "" && said != c.last {
		c.log.Warn().Str("err", said).Bool("connected", connected).Msg("sync failed, tried again")
	} else if said == "" && c.last != "" {
		c.log.Info().Msg("sync works again")
	}
	c.last = said
}

func (a *Agent) exchange(s pendingSync) (*wire.SyncReply, error) {
	s.request.Beat = telemetry()
	s.request.Beat.Sandbox = domain.Clip(a.cfg.Sandbox, wire.MaxText)
	s.request.Logs, s.request.Labels = a.pieces, a.cfg.Labels
	if a.server != nil {
		s.request.Holding = a.server.holding()
	}
	if a.bench != nil {
		s.request.Bench, s.request.Beat.Unmeasured = a.bench.result(), a.bench.waits()
	}
	measured := a.told
	if a.cfg.Vitals != nil {
		if v, n := a.cfg.Vitals(); n != a.told {
			s.request.Beat.Vitals, measured = v, n
		}
	}
	for i := range s.request.Slots {
		if a.cfg.Away != nil {
			s.request.Slots[i].Away = a.cfg.Away(i)
		}
	}
	b, err := wire.EncodeRequest(&s.request)
	if err != nil {
		return nil, err
	}
	answer, err := a.cfg.Transport.Sync(s.ctx, b)
	if err != nil {
		return nil, fmt.Errorf("sync: %w", err)
	}
	reply, err := wire.DecodeReply(answer)
	if err == nil {
		if a.server != nil && reply.Error == nil {
			a.server.hold(reply.Holds)
		}
		if a.cfg.Rest != nil && reply.Error == nil {
			var rest machine.Rest
			if reply.Rest != nil {
				rest = *reply.Rest
			}
			a.cfg.Rest(rest)
		}
		if a.bench != nil && reply.Error == nil {
			a.bench.hear(reply)
		}
		a.told = measured
		a.pieces = a.read(reply.Logs) // those that were sent have arrived
		if len(a.pieces) > 0 {
			a.hint()
		}
	}
	return reply, err
}

// telemetry measures this process.
func telemetry() wire.Telemetry {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	t := wire.Telemetry{CPUs: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Goroutines: runtime.NumGoroutine()}
	if sample[0].Value.Kind() == metrics.KindUint64 {
		t.Memory = sample[0].Value.Uint64()
	}
	return t
}

// sendAgain serves the hub's wishes for blobs it cannot read any more.
func (a *Agent) sendAgain(ctx context.Context) {
	for {
		d, ok := a.resends.pop(ctx)
		if !ok {
			return
		}
		err := a.store.push(ctx, d, func(int64) {})
		local := isLocal(err)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || local:
			a.cfg.Log.Info().Str("blob", d.Short()).Bool("missing", local).Msg("blob was asked for again")
			a.post(ctx, Resent{Blob: d, Missing: local})
		default:
			a.cfg.Log.Warn().Err(err).Str("blob", d.Short()).Msg("blob could not be sent again, tried later")
			a.post(ctx, ResendFailed{Blob: d})
		}
	}
}

// keep does the small work on files, away from the loop.
func (a *Agent) keep(ctx context.Context) {
	for {
		e, ok := a.chores.pop(ctx)
		if !ok {
			return
		}
		if in := a.chore(e); in != nil {
			a.post(ctx, in)
		}
	}
}

// finishChores does what was left when the loop ended: a fresh credential must not be lost.
func (a *Agent) finishChores() {
	for _, e := range a.chores.jobs {
		a.chore(e)
	}
}

func (a *Agent) chore(e Effect) Input {
	switch e := e.(type) {
	case DropDeltas:
		a.cfg.Cache.Drop(e.Run, e.Round)
	case SaveHead:
		if a.cfg.SaveHead == nil {
			return nil
		}
		if err := a.cfg.SaveHead(e.Head); err != nil {
			a.cfg.Log.Warn().Err(err).Msg("the signed head was not kept")
		}
	case SaveCredential:
		if a.cfg.SaveCredential == nil {
			return nil
		}
		after, err := a.cfg.SaveCredential(e.JWT)
		if err != nil {
			a.cfg.Log.Error().Err(err).Str("next", domain.NextOf(err)).Msg("the fresh credential was not kept, asked again")
			return nil
		}
		return CredentialSaved{RenewAfter: after}
	}
	return nil
}
