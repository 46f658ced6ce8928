package event_test

import (
	"testing"

	"tensorturn/domain/event/eventtest"
)

// TestGoldenToy reads what the toy wrote in all its times. Versions 1 and 2 of lamp.turned come from registries that knew
// nothing newer.
func TestGoldenToy(t *testing.T) {
	eventtest.Golden(t, toy(), "testdata/events", &turned{Milliradians: 17})
}
