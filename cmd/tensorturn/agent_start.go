package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/agent"
	"tensorturn/agent/cache"
	"tensorturn/broker/identity"
	"tensorturn/broker/inference"
	"tensorturn/domain"
)

func agentStart(a *app) *cobra.Command {
	var o agentOptions
	o.memory, o.cacheBytes = inference.MaxLoadedBytes, cache.DefaultLimit
	var token, tokenFile, name, hub, logLevel string
	c := &cobra.Command{Use: "start", Short: "work for the pool until SIGTERM", Args: args(),
		Long: "Works for the pool this machine has joined. SIGTERM or Ctrl-C lets it contribute what it has trained before it ends.\n" +
			"With --hub and a token it joins first when it has not joined yet, so that a container needs one command.\n" +
			proxyHelp,
		RunE: func(c *cobra.Command, _ []string) error {
			o.logger = newLogger(a.terminal, logLevel)
			if err := o.check(); err != nil {
				return err
			}
			keys, err := loadAgent(o.dir)
			if err == nil && c.Flags().Changed("name") && keys.Name != "" && keys.Name != name {
				return domain.Conflict("start agent", fmt.Sprintf("this machine joined as %s, and --name %s is given", keys.Name, domain.Clip(name, domain.MaxNameLength)),
					"leave out --name: a machine gets its name when it joins; to give it another, revoke it and join anew with another folder (--dir)")
			}
			if domain.KindOf(err) == domain.KindNotFound && hub != "" { // of a hub's folder it is a conflict
				plain, err := readToken(token, tokenFile)
				if err != nil {
					return err
				}
				if _, err := a.join(c.Context(), joinRequest{dir: o.dir, hub: hub, token: plain, name: name, slots: max(1, int(o.wish))}); err != nil {
					return err
				}
			}
			return a.serveAgent(c.Context(), o)
		}}
	joinFlags(c, &o.dir, &token, &tokenFile, &name, &o.wish)
	f := c.Flags()
	f.StringVar(&hub, "hub", "", "https URL of the hub, to join it when this machine has not joined yet")
	f.Float64Var(&o.throttle, "throttle", 1, "fraction of its speed at which this machine trains, for trials")
	f.DurationVar(&o.reconnect, "reconnect", 0, "longest wait before the link is dialled again (2.5s when 0)")
	f.Var((*byteSize)(&o.cacheBytes), "cache", "data, weights and deltas kept on disk at most")
	f.IntVar(&o.room, "serve", defaultRoom, "deployed models that this machine may hold for predictions, beside its slots; 0 for none")
	f.Var((*byteSize)(&o.memory), "serve-memory", "memory of all of them")
	f.StringVar(&o.python, "python", "", "interpreter of your own scripts on this machine (default: the spec's, or python3 on PATH)")
	f.IntVar(&o.threads, "threads", 0, "threads that a script's numeric libraries use in each slot (0: the cores divided by the slots)")
	f.Var(&o.labels, "label", "a word for requirements of runs, site=home; may be repeated")
	f.StringArrayVar(&o.rest.Hours, "quiet-hours", nil, "hours of this machine's clock in which it does not work: 08:00-18:00, \"mon-fri 08:00-18:00\"; may be repeated")
	f.BoolVar(&o.rest.WhileUsed, "yield", false, "pause the slots of a GPU while another program uses it")
	f.BoolVar(&o.unmeasured, "no-bench", false, "never measure how fast this machine is; the hub learns it from its work alone")
	isolationFlags(f, &o)
	f.DurationVar(&o.stopLimit, "stop-limit", agent.DefaultStopLimit, "how long a stop may take to contribute what is trained")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// firstContact is how long the link to the hub may take before people are told where to look: most come up within a second.
const firstContact = 5 * time.Second

// defaultRoom is how many deployed models a machine holds when its owner says nothing: an ensemble, and some more.
const defaultRoom = 32

// serveAgent runs the agent until it has drained after the context's end, or until the hub lets it go. When GPUs have come it drains
// and begins anew with slots for them.
func (a *app) serveAgent(ctx context.Context, o agentOptions) error {
	for {
		again, err := a.serveOnce(ctx, o)
		if err != nil || !again || ctx.Err() != nil {
			return err
		}
	}
}

// serveOnce runs one agent to its end; again says that it ended for GPUs that have come.
func (a *app) serveOnce(ctx context.Context, o agentOptions) (again bool, err error) {
	p, err := startAgent(ctx, o)
	if err != nil {
		return false, err
	}
	defer p.stop()
	a.say("machine %s works for %s with %s", p.keys.Machine, p.keys.Hub, count(p.opts.slots, "slot"))
	began := time.Now()
	silent := time.NewTimer(firstContact)
	defer silent.Stop()
	for over := false; !over; {
		over = true
		select {
		case <-silent.C:
			over = false
			if !p.leaf.Connected() {
				a.say("%s does not answer yet and is dialled until it does; tensorturn doctor%s says what is in the way", p.keys.Hub, dirFlag(o.dir))
			}
		case <-p.agent.Done():
		case <-p.grown:
			again = true
			a.say("GPUs have come: contributing what is trained, then beginning anew with slots for them")
			p.agent.Drain()
			<-p.agent.Done()
		case err := <-p.expelled:
			return false, err
		case <-ctx.Done():
			began = time.Now()
			a.sayStopping(p)
			p.agent.Drain()
			<-p.agent.Done()
		}
	}
	a.say("ended: %s (%s)", p.agent.Reason(), short(time.Since(began)))
	return again, nil
}

// sayStopping says what a stop waits for.
func (a *app) sayStopping(p *agentProcess) {
	if p.leaf.Connected() {
		a.say("stopping: contributing what is trained; a second signal ends at once")
		return
	}
	a.say("stopping: the hub does not answer; what is trained is kept for it, waiting up to %s; a second signal ends at once", short(p.opts.stopLimit))
}

// keptHead gives the newest signed head of the hub's log that this agent kept. One that is damaged says nothing, and the next one
// of the hub takes its place.
func (p *agentProcess) keptHead() []byte {
	path := filepath.Join(p.opts.dir, headFile)
	b, err := readSmall(path, maxHeadFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, _, err = identity.OpenHead(p.keys.HeadKey, b)
	}
	if err != nil {
		p.opts.logger.Warn().Err(err).Str("file", path).Msg("the kept position of the hub's log is damaged and is made anew")
		return nil
	}
	return b
}

// headFile holds the newest signed head, so that a rolled-back log is noticed when this agent returns.
const headFile = "head"
