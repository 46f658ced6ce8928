package machine_test

import (
	"testing"

	"tensorturn/domain/event"
	"tensorturn/domain/event/eventtest"
	"tensorturn/domain/machine"
)

func TestGoldenSamples(t *testing.T) {
	r := event.NewRegistry()
	machine.Register(r)
	eventtest.Golden(t, r, "testdata/events")
}
