package hub

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// Heartbeat is the event on the HEARTBEATS stream: what a machine said, without what decides. Msgpack, one subject per
// machine, bounded age; a loss is allowed.
type Heartbeat struct {
	Machine     domain.MachineID   `msgpack:"machine"`
	Incarnation domain.Incarnation `msgpack:"inc"`
	Counter     uint64             `msgpack:"n"`
	Time        int64              `msgpack:"time"` // hub's clock, unix milliseconds
	Build       string             `msgpack:"build"`
	Telemetry   wire.Telemetry     `msgpack:"beat"`
	Slots       []SlotBeat         `msgpack:"slots"`
}

// SlotBeat is one slot in a heartbeat.
type SlotBeat struct {
	Run      domain.RunID `msgpack:"run"`
	Epoch    domain.Epoch `msgpack:"epoch"`
	Phase    wire.Phase   `msgpack:"phase"`
	Trained  int          `msgpack:"trained"` // chunks since the last contribution
	Progress uint64       `msgpack:"prog"`
	Loss     *float64     `msgpack:"loss"`
	Speed    float64      `msgpack:"speed"` // samples per second
}

func beatOf(in Sync, now time.Time) Beat {
	r := in.Request
	h := Heartbeat{
		Machine: in.Machine, Incarnation: r.Incarnation, Counter: r.Counter, Time: now.UnixMilli(), Build: r.Build,
		Telemetry: r.Beat, Slots: make([]SlotBeat, len(r.Slots)),
	}
	for i, s := range r.Slots {
		h.Slots[i] = SlotBeat{Run: s.Run, Epoch: s.Epoch, Phase: s.Phase, Trained: len(s.Trained), Progress: s.Progress, Loss: s.Loss, Speed: s.Speed}
	}
	data, err := pack.Encode(h)
	domain.Assert(err == nil, "a heartbeat can always be encoded")
	return Beat{Machine: in.Machine, Data: data}
}
