package wire

import (
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// member judges what a slot says about its member.
func (c *checker) member(m *Member) {
	if m == nil {
		return
	}
	c.require(m.Chunks >= 0 && m.Chunks <= run.MaxChunks, "a member's chunks are out of range")
	c.text("mute", m.Mute)
	if k := m.Checkpoint; k != nil {
		c.require(k.Chunks >= 0 && k.Chunks <= run.MaxChunks, "a checkpoint's chunks are out of range")
		c.digest("checkpoint", k.Blob, true)
		c.loss("checkpoint loss", k.Loss)
		c.require(k.Bytes >= 0 && k.Bytes <= domain.MaxBlobBytes, "a checkpoint's size is out of range")
	}
	if t := m.Trained; t != nil {
		c.digest("member weights", t.Weights, false)
		c.digest("member layout", t.Layout, false)
		c.require(t.Params >= 0, "member params is negative")
		c.loss("member loss", t.Loss)
	}
	if o := m.Outputs; o != nil {
		c.digest("member outputs", o.Blob, false)
		c.count("rows", o.Rows)
		c.count("classes", o.Classes)
		c.measure("accuracy", o.Accuracy)
		c.loss("outputs loss", o.Loss)
	}
}

// ensemble refuses a member's job from which no member could be made.
func (c *checker) ensemble(d *SlotDesire) {
	if d.Unit != run.UnitMember {
		return
	}
	e := d.Job.Spec.Ensemble
	c.require(e != nil && e.Recipe.Seed != nil && e.Members <= run.MaxMembers && d.Member <= e.Members+1, "a job without member %d", d.Member)
	c.require(d.Job.Spec.Chunk > 0 && d.Job.Spec.Batch > 0 && d.Job.Data.Samples > 0, "a member's job without samples")
}
