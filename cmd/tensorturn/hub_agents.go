package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorturn/broker/dispatch"
	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections/fleet"
)

// leastSilence is how long a machine may say nothing until models are not counted on there any more, whatever the lease.
const leastSilence = 3 * time.Second

// openDispatch makes what asks agents for predictions.
func (h *hubProcess) openDispatch() error {
	nc, err := h.broker.ServiceConn("predictions")
	if err != nil {
		return err
	}
	link := dispatch.NewLink(nc)
	h.dispatch = dispatch.New(dispatch.Config{
		Sender: link, Machines: h.machines, Deployed: func() []*inference.Version { return h.front.OnAgents() }, Facts: h.facts,
		Wake: func(m domain.MachineID) { h.service.WakeMachine(m) }, Silent: max(domain.TimingOf(h.opts.lease).Suspect, leastSilence),
		Now: time.Now, Logger: h.opts.logger,
	})
	h.later(func() error { link.Close(); return nil })
	return link.Serve(h.dispatch.Answer, h.dispatch.Unreached)
}

// machines lists those that may hold models.
func (h *hubProcess) machines() []dispatch.Machine {
	var all []fleet.Machine
	h.views.Engine.Read(func(uint64) { all = h.views.Fleet.List() })
	var out []dispatch.Machine
	for _, m := range all {
		if m.Standing != machine.Revoked {
			out = append(out, dispatch.Machine{ID: m.ID, Account: m.Account, Leaving: m.Draining || m.Quarantined != "" || m.Standing == machine.Drained})
		}
	}
	slices.SortFunc(out, func(a, b dispatch.Machine) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// facts says what goes into a version: the packed table knows, and of a program's own data the spec.
func (h *hubProcess) facts(ctx context.Context, v *inference.Version) (inference.Facts, error) {
	if v.Spec.Trainer == run.Process {
		return processFacts(v.Data)
	}
	data, err := blob.Open(ctx, v.Data.Blob, h.store.Blobs.Get)
	if err != nil {
		return inference.Facts{}, err
	}
	set, err := dataset.Open(data, data.Size())
	if err != nil {
		return inference.Facts{}, err
	}
	f := set.Facts()
	return inference.Facts{Columns: f.Columns, Classes: f.Outputs(), Form: dataset.FormOf(f, v.Spec.Data)}, nil
}

// processFacts numbers what an owner's program takes and gives: it has no names for them.
func processFacts(d run.Dataset) (inference.Facts, error) {
	if d.Features < 1 || d.Classes < 1 {
		return inference.Facts{}, domain.Invalid("serve a model", "the spec does not say how many values a prediction takes and gives", "submit the run with data.features and data.classes in its spec")
	}
	return inference.Facts{Columns: numbered(d.Features), Classes: numbered(d.Classes)}, nil
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}
