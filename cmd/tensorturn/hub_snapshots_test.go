package main

import (
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/broker/hub"
	"tensorturn/broker/metrics"
	"tensorturn/domain/freeze"
)

// TestSchemaOfSnapshots: every state that a hub folds can be frozen. A type that cannot has an
// interface, a function or the like (domain/freeze says which): make it again in the part's Restored.
func TestSchemaOfSnapshots(t *testing.T) {
	parts := append([]freeze.Part{hub.Part()}, gateway.NewViews().Engine.Parts()...)
	parts = append(parts, metrics.New("v", nil).Parts()...)
	for _, p := range parts {
		b, err := freeze.Freeze(p)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if _, err := freeze.Thaw(p, b, 1<<20); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
