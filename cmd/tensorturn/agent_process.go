package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent"
	"tensorturn/agent/cache"
	"tensorturn/agent/device"
	"tensorturn/agent/rest"
	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	processtrainer "tensorturn/agent/trainer/process"
	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

type agentOptions struct {
	dir        string
	wish       slotCount // what the owner wants
	slots      int       // what the machine has
	throttle   float64
	reconnect  time.Duration
	cacheBytes int64
	stopLimit  time.Duration
	python     string // interpreter of process trainers
	threads    int    // of their numeric libraries, 0: cores divided by slots
	isolation  isolationOptions
	room       int   // deployed models held at most
	memory     int64 // of deployed models
	labels     labelList
	rest       machine.Rest // when this machine rests by itself, by its flags
	unmeasured bool         // this machine takes no benchmark
	logger     zerolog.Logger
}

// check refuses what the machine would not notice before it has work, in the words of the flags.
func (o *agentOptions) check() error {
	const op = "start agent"
	switch {
	case !(o.throttle > 0 && o.throttle <= 1):
		return domain.Invalid(op, fmt.Sprintf("--throttle is %v", o.throttle), "give a fraction of its speed above 0, at most 1")
	case o.room < 0 || o.room > wire.MaxHeld:
		return domain.Invalid(op, fmt.Sprintf("--serve is %d", o.room), fmt.Sprintf("give 0 to %d deployed models", wire.MaxHeld))
	case o.threads < 0:
		return domain.Invalid(op, fmt.Sprintf("--threads is %d", o.threads), "give a number of threads, or 0 for the cores divided by the slots")
	case o.reconnect < 0:
		return domain.Invalid(op, fmt.Sprintf("--reconnect is %s", o.reconnect), "give a time such as 2s, or 0 for the default")
	case o.stopLimit < 0:
		return domain.Invalid(op, fmt.Sprintf("--stop-limit is %s", o.stopLimit), "give a time such as 2m")
	case len(o.isolation.read) > 0 && !o.isolation.sandbox && !o.isolation.required:
		return domain.Invalid(op, "--sandbox-read is for scripts in a sandbox", "add --sandbox, or leave it out: without one scripts read what this user may")
	}
	if o.python == "" {
		return nil
	}
	if _, err := exec.LookPath(o.python); err != nil {
		return domain.Invalid(op, "--python: "+domain.Clip(o.python, domain.MaxNameLength)+" is no program that can be started here", "name an interpreter, for example /usr/bin/python3")
	}
	return nil
}

// agentProcess is a running agent: keys, cache, leafnode, and the agent around them.
type agentProcess struct {
	opts    agentOptions
	keys    *identity.AgentKeys
	cache   *cache.Cache
	leaf    *agent.Leaf
	agent   *agent.Agent
	models  *agentModels
	clock   *agent.HubClock
	machine *device.Machine
	rest    *rest.Rest
	rested  machine.Rest // what the hub said last; the agent's talker's own once it runs

	expelled chan error         // the hub says that this machine was revoked
	grown    chan struct{}      // closed when GPUs have come that no slot has
	unwatch  context.CancelFunc // ends the goroutine that asks
	watching sync.WaitGroup

	mu         sync.Mutex // guards the credential, which a goroutine of the agent renews
	credential string
}

func startAgent(ctx context.Context, o agentOptions) (p *agentProcess, err error) {
	p = &agentProcess{opts: o, clock: agent.NewHubClock(wallClock), expelled: make(chan error, 1), grown: make(chan struct{})}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.keys, err = loadAgent(o.dir); err != nil {
		return p, err
	}
	p.credential = p.keys.Credential
	if err = p.startRest(); err != nil {
		return p, err
	}
	given, err := p.startDevices(ctx)
	if err != nil {
		return p, err
	}
	p.opts.slots = len(given)
	o = p.opts
	if p.cache, err = cache.Open(filepath.Join(o.dir, "cache"), cache.Options{Limit: o.cacheBytes, Lost: p.sayLost}); err != nil {
		return p, err
	}
	tlsConfig, err := identity.TrustTLS(p.keys.CA)
	if err != nil {
		return p, err
	}
	tlsConfig.Time = p.clock.Now
	client := agent.NewHTTPClient(tlsConfig)
	client.Transport = p.clock.Listen(client.Transport)
	blobs, err := agent.NewHTTPBlobs(p.keys.Hub, client, func() (string, error) {
		return identity.SignBlobToken(p.keys.Key(), p.keys.Machine, p.clock.Now())
	})
	if err != nil {
		return p, err
	}
	leafURL, err := identity.LeafURL(p.keys.Hub)
	if err != nil {
		return p, err
	}
	p.leaf, err = agent.StartLeaf(ctx, embedded.LeafOptions{Name: string(p.keys.Machine), URL: leafURL, TLS: tlsConfig,
		User:         embedded.User{JWT: p.jwt, Sign: p.keys.Key().Sign},
		ReconnectMin: o.reconnect / 4, ReconnectMax: o.reconnect, Logger: o.logger})
	if err != nil {
		return p, err
	}
	trainers, own, err := openers(ctx, o)
	if err != nil {
		return p, err
	}
	p.models = newAgentModels(agent.NewCachedBlobs(p.cache, blobs), trainers, o.memory, o.logger)
	p.agent, err = agent.New(agent.Config{
		Incarnation: domain.Incarnation(newID("i")), Slots: o.slots, Build: version, Seed: seed(), StopLimit: o.stopLimit,
		Transport: p.leaf, Blobs: blobs, Cache: p.cache, Trainer: trainers, Throttle: o.throttle,
		Vitals: p.machine.Vitals, Devices: given, Away: p.away, Labels: o.labels,
		Rest: p.hearRest, Measure: p.measure(o, blobs, given),
		Sandbox: own.Sandbox(), Logs: trainerLogs{own}, Models: p.models, Questions: p.leaf, Room: o.room,
		HeadSeq: func(head []byte) (uint64, bool) {
			seq, _, err := identity.OpenHead(p.keys.HeadKey, head)
			return seq, err == nil
		},
		Head: p.keptHead(), SaveHead: func(b []byte) error { return writeSmall(filepath.Join(o.dir, headFile), b) },
		RenewAfter: untilHalf(p.credential, p.clock.Now()), SaveCredential: p.save, Log: o.logger,
	})
	if err != nil {
		return p, err
	}
	if err = p.agent.Start(); err != nil {
		return p, err
	}
	watch, cancel := context.WithCancel(context.Background())
	p.unwatch = cancel
	p.watching.Go(func() { p.watchMembership(watch) })
	p.watching.Go(func() { p.watchDevices(watch, given) })
	return p, nil
}

// sayLost tells the machine's owner of what the disk has damaged: the agent helps itself, and the disk may be dying.
func (p *agentProcess) sayLost(err error) {
	p.opts.logger.Warn().Err(err).Str("next", domain.NextOf(err)).Msg("a file of the cache is damaged; it is made or fetched again")
}

// openers chooses the trainer that the run's spec names, and gives the one of owners' programs.
func openers(ctx context.Context, o agentOptions) (trainer.Factory, *processtrainer.Opener, error) {
	threads := o.threads
	if threads == 0 {
		threads = max(1, runtime.NumCPU()/max(1, o.slots))
	}
	held, err := chooseSandbox(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	own, err := processtrainer.New(processtrainer.Options{Root: filepath.Join(o.dir, "trainers"), Python: o.python, Threads: threads,
		Environ: os.Environ(), Log: o.logger, Limits: o.isolation.limits, Sandbox: held, RequireSandbox: o.isolation.required,
		Read: o.isolation.read, Hide: []string{o.dir}})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, job trainer.Job) (trainer.Trainer, error) {
		if job.Spec.Trainer == run.Process {
			return own.Open(ctx, job)
		}
		return builtin.Open(ctx, job)
	}, own, nil
}

// stop ends everything in reverse order.
func (p *agentProcess) stop() error {
	if p.unwatch != nil {
		p.unwatch()
		p.watching.Wait()
	}
	if p.agent != nil {
		p.agent.Stop()
	}
	if p.models != nil {
		p.models.engine.Stop()
	}
	if p.leaf != nil {
		p.leaf.Close()
	}
	if p.machine != nil {
		p.machine.Stop()
	}
	if p.cache != nil {
		return errors.Join(p.cache.Close())
	}
	return nil
}

// save keeps a fresh credential; the link uses it when it is dialled the next time.
func (p *agentProcess) save(jwt string) (time.Duration, error) {
	if _, err := identity.ReadValidity(jwt); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.credential, p.keys.Credential = jwt, jwt
	return untilHalf(jwt, p.clock.Now()), p.keys.Save(filepath.Join(p.opts.dir, agentKeysFile))
}

// untilHalf is the time until half of the credential's life is over, at least a moment: 0 would mean never.
func untilHalf(jwt string, now time.Time) time.Duration {
	v, err := identity.ReadValidity(jwt)
	if err != nil {
		return time.Millisecond
	}
	half := v.Issued.Add(v.Expires.Sub(v.Issued) / 2)
	return max(half.Sub(now), time.Millisecond)
}

// seed draws the seed of the agent's jitter.
func seed() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}
