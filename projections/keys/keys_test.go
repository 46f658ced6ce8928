package keys_test

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/keys"
)

func TestKeysAreFoundByHashAndBounded(t *testing.T) {
	v, at := keys.New(), time.Unix(1e9, 0).UTC()
	apply := func(d event.Data) {
		v.Apply(event.Envelope{Kind: event.KindPool, Agg: pool.ID, Time: at, Data: d})
	}
	hash := func(id string) domain.Digest { return event.Digest([]byte(id)) }
	create := func(id string) {
		apply(&pool.KeyCreated{Key: domain.KeyID(id), Hash: hash(id), Tail: "abcd", Role: pool.RoleModel, Model: "digits", Rate: 5, Per: 60, Expires: at.Add(time.Hour).UnixMicro()})
	}
	create("live")
	for i := range 3000 {
		id := fmt.Sprint("k-", i)
		create(id)
		apply(&pool.KeyRevoked{Key: domain.KeyID(id)})
	}
	if n := len(v.List()); n < 1025 || n > 1026 {
		t.Errorf("%d keys are listed", n)
	}
	k, ok := v.Find(hash("live"))
	if !ok || k.ID != "live" || !k.Live(at) || k.Live(at.Add(time.Hour)) || k.Rate != 5 || k.Per != 60 {
		t.Errorf("the live one: %v %+v", ok, k)
	}
	if k, ok := v.Find(hash("k-2999")); !ok || !k.Revoked {
		t.Errorf("the newest dead one: %v %+v", ok, k)
	}
	for _, h := range []domain.Digest{hash("k-0"), hash("nobody"), ""} {
		if k, ok := v.Find(h); ok {
			t.Errorf("%q finds %+v", h, k)
		}
	}
	if _, ok := v.Get("k-0"); ok {
		t.Error("the oldest dead one is still known")
	}
}
