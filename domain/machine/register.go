package machine

import "tensorturn/domain/event"

// Register adds the facts of a machine to r.
func Register(r *event.Registry) {
	r.Add(NameEnrolled, 1, func() event.Data { return new(BecameEnrolled) })
	r.Add(NameOnline, 1, func() event.Data { return new(BecameOnline) })
	r.Add(NameSuspect, 1, func() event.Data { return new(BecameSuspect) })
	r.Add(NameLost, 1, func() event.Data { return new(BecameLost) })
	r.Add(NameDraining, 1, func() event.Data { return new(BecameDraining) })
	r.Add(NameDrained, 1, func() event.Data { return new(BecameDrained) })
	r.Add(NameResumed, 1, func() event.Data { return new(Resumed) })
	r.Add(NameRevoked, 1, func() event.Data { return new(BecameRevoked) })
	r.Add(NameSlotsPaused, 1, func() event.Data { return new(SlotsPaused) })
	r.Add(NameSlotsResumed, 1, func() event.Data { return new(SlotsResumed) })
	r.Add(NameRestSet, 1, func() event.Data { return new(RestSet) })
	r.Add(NameBenchAsked, 1, func() event.Data { return new(BenchAsked) })
	r.Add(NameBenchmarked, 1, func() event.Data { return new(Benchmarked) })
	r.Add(NameSlow, 1, func() event.Data { return new(BecameSlow) })
	r.Add(NameRecovered, 1, func() event.Data { return new(Recovered) })
	r.Add(NameLabelled, 1, func() event.Data { return new(Labelled) })
	r.Add(NameQuarantined, 1, func() event.Data { return new(BecameQuarantined) })
}
