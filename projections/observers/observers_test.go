package observers_test

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/observers"
)

func TestListIsBoundedAndKeepsTheLive(t *testing.T) {
	v, at := observers.New(), time.Unix(1e9, 0).UTC()
	apply := func(d event.Data) {
		v.Apply(event.Envelope{Kind: event.KindPool, Agg: pool.ID, Time: at, Data: d})
	}
	create := func(id string) {
		apply(&pool.ObserverCreated{Observer: domain.ObserverID(id), Account: "A" + id, Since: 5, Expires: at.Add(time.Hour).UnixMicro()})
	}
	create("live")
	for i := range 1000 {
		id := fmt.Sprint("o-", i)
		create(id)
		apply(&pool.ObserverRevoked{Observer: domain.ObserverID(id)})
	}
	if n := len(v.List()); n < 257 || n > 258 {
		t.Errorf("%d observers are listed", n)
	}
	o, ok := v.Get("live")
	if !ok || !o.Live(at) || o.Live(at.Add(time.Hour)) || o.Since == nil || o.Since.UnixMicro() != 5 {
		t.Errorf("the live one: %v %+v", ok, o)
	}
	if o, ok := v.Get("o-999"); !ok || o.Live(at) {
		t.Errorf("the newest dead one: %v %+v", ok, o)
	}
	if _, ok := v.Get("o-0"); ok {
		t.Error("the oldest dead one is still listed")
	}
}
