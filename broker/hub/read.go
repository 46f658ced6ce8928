package hub

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// The questions below change nothing. They must be asked by the caller of Step, between steps.

// Head is the sequence of the last record and its digest; 0 and "" for an empty log.
func (c *Core) Head() (uint64, domain.Digest) { return c.committer.Head() }

func (c *Core) head() uint64 {
	seq, _ := c.committer.Head()
	return seq
}

// ReadOnly is why no state may change any more, nil when it may.
func (c *Core) ReadOnly() error { return c.readOnly }

// Stats gives the counts of what should not happen.
func (c *Core) Stats() Stats { return c.stats }

// MachineByAccount finds the machine behind an account token. Revoked machines are found too: they are told so.
func (c *Core) MachineByAccount(account string) (domain.MachineID, bool) {
	id, ok := c.fold.accounts[account]
	return id, ok
}

// Machine gives a copy of a machine's state.
func (c *Core) Machine(id domain.MachineID) (machine.State, bool) {
	m, ok := c.fold.machines[id]
	if !ok {
		return machine.State{}, false
	}
	return *m, true
}

// Contested lists, by id, the machines with whose key a second agent process has spoken within the last lease time, and was
// sent away: two machines, or two folders, hold one key.
func (c *Core) Contested() (ids []domain.MachineID) {
	for _, id := range c.fold.order {
		if ct := c.mem.contacts[id]; ct != nil && ct.rival.refused >= minRivals && c.now.Sub(ct.rival.last) < c.cfg.Timing.Lease {
			ids = append(ids, id)
		}
	}
	return ids
}

// Run gives a copy of a run's state, nil when there is no such run.
func (c *Core) Run(id domain.RunID) *run.State { return c.fold.runs[id].Clone() }

// Stale is why what the questions are asked about is not what the log holds, nil when it is.
func (c *Core) Stale() error { return c.stale }

// Machines lists all machines by id.
func (c *Core) Machines() []domain.MachineID { return slices.Clone(c.fold.order) }

// Runs lists all runs by submission.
func (c *Core) Runs() []domain.RunID { return slices.Clone(c.fold.runOrder) }

// Distrust makes the hub read-only because of evidence from outside the log, such as an agent's signed head.
func (c *Core) Distrust(err error) {
	if c.readOnly == nil {
		c.readOnly = readOnlyBecause(err)
	}
}
