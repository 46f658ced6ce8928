package pool

import "tensorturn/domain/event"

// Register adds the facts of a pool to r.
func Register(r *event.Registry) {
	r.Add(NameFounded, 1, func() event.Data { return new(Founded) })
	r.Add(NameTokenCreated, 1, func() event.Data { return new(TokenCreated) })
	r.Add(NameTokenUsed, 1, func() event.Data { return new(TokenUsed) })
	r.Add(NameTokenRevoked, 1, func() event.Data { return new(TokenRevoked) })
	r.Add(NameObserverCreated, 1, func() event.Data { return new(ObserverCreated) })
	r.Add(NameObserverRevoked, 1, func() event.Data { return new(ObserverRevoked) })
	r.Add(NameKeyCreated, 1, func() event.Data { return new(KeyCreated) })
	r.Add(NameKeyRevoked, 1, func() event.Data { return new(KeyRevoked) })
	r.Add(NameModelDeployed, 1, func() event.Data { return new(ModelDeployed) })
	r.Add(NameModelRolledBack, 1, func() event.Data { return new(ModelRolledBack) })
	r.Add(NameModelRetired, 1, func() event.Data { return new(ModelRetired) })
	r.Add(NameInferenceCounted, 1, func() event.Data { return new(InferenceCounted) })
}
