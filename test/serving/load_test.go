package serving

import (
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Under load versions come and go and a key is revoked. No request of a good key is lost, each is answered by a version that
// was deployed, and from the moment its revocation is answered the other key gets nothing.
func TestSwapsAndARevokedKeyUnderLoad(t *testing.T) {
	p, ids := trained(t, 1, 2)
	x, _ := rows(t, 1)
	body := oneRow(x)
	p.Must("model", "deploy", string(ids[0]), "--name", "digits")
	_, good := newKey(t, p, "digits", "--rate", "100000/s")
	badID, bad := newKey(t, p, "digits", "--rate", "100000/s")
	var revoked atomic.Int64 // when the revocation was answered, unix nanoseconds
	revoked.Store(math.MaxInt64)
	var stop atomic.Bool
	var asked, used, through atomic.Int64
	versions := sync.Map{}
	var all sync.WaitGroup
	for i := range 8 {
		key := good
		if i%2 == 1 {
			key = bad
		}
		a := newAsker(t, p, key)
		all.Go(func() {
			for !stop.Load() {
				began := time.Now().UnixNano()
				s, err := a.send(http.MethodPost, "/v2/models/digits/infer", body)
				asked.Add(1)
				switch {
				case err != nil:
					t.Errorf("lost: %v", err)
					return
				case s.Code == 200:
					versions.Store(s.Version, true)
					switch {
					case key == good:
					case began > revoked.Load():
						through.Add(1)
					default:
						used.Add(1)
					}
				case key == good || s.Code != 401:
					t.Errorf("%d %s", s.Code, s.Error)
					return
				}
			}
		})
	}
	step := func(args ...string) {
		t.Helper()
		n := asked.Load()
		p.Await("load", func() bool { return asked.Load() >= n+200 || t.Failed() })
		p.Must(args...)
	}
	step("model", "deploy", string(ids[1]), "--name", "digits")
	step("model", "rollback", "digits")
	step("model", "deploy", string(ids[1]), "--name", "digits")
	step("key", "revoke", badID)
	revoked.Store(time.Now().UnixNano())
	step("model", "rollback", "digits", "--to", "2")
	stop.Store(true)
	all.Wait()
	if n := used.Load(); n < 50 { // the look below would see a key that works
		t.Errorf("the other key came through %d times before its end", n)
	}
	if through.Load() > 0 {
		t.Errorf("%d requests came through with a revoked key", through.Load())
	}
	for _, v := range []string{"1", "2", "3"} {
		if _, ok := versions.Load(v); !ok {
			t.Errorf("version %s never answered", v)
		}
	}
	t.Logf("%d requests", asked.Load())
}

// An ensemble is deployed as one model whose members vote; parameters say how.
func TestDeployedEnsemble(t *testing.T) {
	p, _ := trained(t)
	id := p.Submit(spec(t, 3, "mode: ensemble\nensemble: {members: 3}\n"))
	p.AwaitEnd(id)
	p.Must("model", "deploy", string(id), "--name", "voters")
	_, key := newKey(t, p, "voters")
	a := newAsker(t, p, key)
	x, labels := rows(t, 200)
	acc, s := accuracy(t, a, "voters", x, labels)
	if acc < 0.8 || s.Parameters["members_used"] != 3.0 {
		t.Errorf("accuracy %.3f, parameters %v", acc, s.Parameters)
	}
	one, err := a.infer("voters", x[:1])
	if err != nil || one.Parameters["votes"] == nil || one.Parameters["agreement"] == nil {
		t.Errorf("%+v %v", one, err)
	}
	t.Logf("accuracy %.3f, one row: %v", acc, one.Parameters)
}
