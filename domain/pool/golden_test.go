package pool_test

import (
	"testing"

	"tensorturn/domain/event"
	"tensorturn/domain/event/eventtest"
	"tensorturn/domain/pool"
)

func TestGoldenSamples(t *testing.T) {
	r := event.NewRegistry()
	pool.Register(r)
	eventtest.Golden(t, r, "testdata/events")
}
