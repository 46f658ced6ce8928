package fleet

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
)

// The list is bounded, and a token that still admits machines is never the one that goes.
func TestTokensAreBounded(t *testing.T) {
	v, at := New(), time.Unix(1e9, 0).UTC()
	apply := func(d event.Data) { v.Apply(event.Envelope{Kind: event.KindPool, Agg: pool.ID, Time: at, Data: d}) }
	create := func(id string) {
		apply(&pool.TokenCreated{Token: domain.TokenID(id), Uses: 2, Expires: at.Add(time.Hour).UnixMicro()})
	}
	create("t-live")
	for i := range 2 * maxTokens {
		id := fmt.Sprint("t-", i)
		create(id)
		if i%2 == 0 {
			apply(&pool.TokenRevoked{Token: domain.TokenID(id)})
		} else {
			apply(&pool.TokenUsed{Token: domain.TokenID(id), Left: 0})
		}
	}
	if n := len(v.Tokens()); n != maxTokens {
		t.Errorf("%d tokens are kept, the bound is %d", n, maxTokens)
	}
	if k, ok := v.Token("t-live"); !ok || !k.Live(at) {
		t.Errorf("the live token went: %v %+v", ok, k)
	}
	if _, ok := v.Token("t-0"); ok {
		t.Error("the oldest dead token stayed")
	}
	if k, _ := v.Token(domain.TokenID(fmt.Sprint("t-", 2*maxTokens-1))); k.Uses != 0 || k.Live(at) {
		t.Errorf("a used token: %+v", k)
	}
}
