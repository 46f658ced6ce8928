package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"time"
)

// check is one thing to look at.
type check struct {
	name  string
	kinds []Kind
	limit time.Duration
	look  func(ctx context.Context, e *exam) Finding
}

// exam is an examination under way. It is not changed by checks.
type exam struct {
	*Patient
	Probes
	proxyRoots *x509.CertPool // who may vouch for an https proxy; nil: whom the system trusts
}

// checks is the list, in the order in which they are told.
func checks() []check {
	both, agent, hub := []Kind{Agent, Hub}, []Kind{Agent}, []Kind{Hub}
	return []check{
		{"keys", both, localLimit, lookKeys},
		{"name", both, netLimit, lookName},
		{"port", both, netLimit, lookPort},
		{"certificate", both, netLimit, lookCertificate},
		{"websocket", both, netLimit, lookWebsocket},
		{"hub", both, netLimit, lookHub},
		{"clock", both, netLimit, lookClock},
		{"token", agent, netLimit, lookToken},
		{"credential", agent, localLimit, lookCredential},
		{"membership", agent, netLimit, lookMembership},
		{"operator", hub, netLimit, lookOperator},
		{"machines", hub, netLimit, lookMachines},
		{"disk", both, localLimit, lookDisk},
		{"temp", both, localLimit, lookTemp},
		{"files", both, localLimit, lookFiles},
		{"gpu", agent, gpuLimit, lookGPU},
		{"python", agent, gpuLimit + pythonLimit, lookPython},
		{"sandbox", agent, sandboxLimit, lookSandbox},
	}
}

// Examine runs every check that concerns the patient, side by side, and tells them in a fixed order.
func Examine(ctx context.Context, p Patient, with Probes) Report {
	with.GPUs = once(ctx, with.GPUs)
	return examine(ctx, &exam{Patient: &p, Probes: with}, checks())
}

// once asks for the GPUs a single time: two checks want to know, and a driver in trouble is not to be asked twice at once.
func once(ctx context.Context, ask func(context.Context) GPUs) func(context.Context) GPUs {
	answer := sync.OnceValue(func() GPUs {
		ctx, cancel := context.WithTimeout(ctx, gpuLimit)
		defer cancel()
		return ask(ctx)
	})
	return func(context.Context) GPUs { return answer() }
}

func examine(ctx context.Context, e *exam, all []check) Report {
	r := Report{Kind: e.Kind, Dir: e.Dir, Hub: e.Hub}
	var mine []check
	for _, c := range all {
		for _, k := range c.kinds {
			if k == e.Kind {
				mine = append(mine, c)
			}
		}
	}
	r.Findings = make([]Finding, len(mine))
	var work sync.WaitGroup
	for i, c := range mine {
		work.Go(func() { r.Findings[i] = c.within(ctx, e) })
	}
	work.Wait()
	r.settle()
	return r
}

// patience is how much longer than its limit a check is waited for: it has been told to end.
const patience = time.Second

// within runs a check and waits for it until its limit. One that does not end then, such as a question to a dead network disk, is
// left behind: only the kernel can end it, and this process ends soon.
func (c check) within(ctx context.Context, e *exam) Finding {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	out := make(chan Finding, 1)
	go func() {
		f := c.look(ctx, e)
		if ctx.Err() != nil && f.State != Problem {
			f = c.late() // what it says of a look that was cut off is not to be believed
		}
		out <- f
	}()
	over := time.NewTimer(c.limit + patience)
	defer over.Stop()
	var f Finding
	select {
	case f = <-out:
	case <-over.C:
		f = c.late()
	}
	f.Check, f.Took = c.name, time.Since(began).Milliseconds()
	return f
}

func (c check) late() Finding {
	return Finding{State: Unknown, Code: Unfinished, Says: fmt.Sprintf("the %s check came to no end within %s", c.name, c.limit), Fix: "look again; a disk, a name server or a driver that hangs shows like this"}
}
