package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

func TestPartsComeAndGo(t *testing.T) {
	r := newRig(t, nil)
	kp, _ := r.enrol("box")
	key := r.proof(kp, identity.AudienceBlobs, time.Now())
	for _, part := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("y"), domain.MaxPartBytes)} {
		path := "/blobs/" + string(blob.Sum(part))
		if a := r.call("HEAD", path, key, nil); a.status != 404 {
			t.Errorf("HEAD before: %d", a.status)
		}
		r.call("GET", path, key, nil).refused(t, 404, domain.KindNotFound, "")
		for range 2 { // again is no error
			if a := r.call("PUT", path, key, part); a.status != http.StatusCreated {
				t.Fatalf("PUT of %d bytes: %d %s", len(part), a.status, a.body)
			}
		}
		if a := r.call("HEAD", path, key, nil); a.status != 200 || len(a.body) != 0 {
			t.Errorf("HEAD after: %d", a.status)
		}
		if a := r.call("GET", path, key, nil); a.status != 200 || !bytes.Equal(a.body, part) || a.header.Get("Content-Length") != fmt.Sprint(len(part)) {
			t.Errorf("GET: %d, %d bytes", a.status, len(a.body))
		}
	}
}

func TestPartsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	d := string(blob.Sum([]byte("part")))
	r.call("PUT", "/blobs/"+d, r.key, "other").refused(t, 400, domain.KindInvalid, "")
	r.call("PUT", "/blobs/"+d[1:], r.key, "part").refused(t, 400, domain.KindInvalid, "not a SHA-256")
	r.call("GET", "/blobs/"+strings.ToUpper(d), r.key, nil).refused(t, 400, domain.KindInvalid, "not a SHA-256")
	r.call("GET", "/blobs/..%2f..%2fetc%2fpasswd", r.key, nil).refused(t, 400, domain.KindInvalid, "")
	r.call("PUT", "/blobs/"+d, r.key, make([]byte, domain.MaxPartBytes+1)).refused(t, 400, domain.KindInvalid, "above the limit")
	chunked, err := http.NewRequest("PUT", "https://"+r.addr+"/blobs/"+d, io.MultiReader(strings.NewReader("part")))
	r.must(err)
	chunked.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := r.http.Do(chunked)
	r.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	r.must(err)
	answer{resp.StatusCode, resp.Header, b}.refused(t, 400, domain.KindInvalid, "length is missing")
	if has, _ := r.blobs.Has(t.Context(), []domain.Digest{domain.Digest(d)}); has[0] {
		t.Error("a refused part is stored")
	}
}

// A transfer that is cut leaves nothing, and the front's place for it comes free.
func TestShortBody(t *testing.T) {
	r := newRig(t, nil)
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	d := blob.Sum([]byte("whole"))
	for range 40 { // more than one caller may have in flight
		c, err := tls.Dial("tcp", r.addr, trust)
		r.must(err)
		fmt.Fprintf(c, "PUT /blobs/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 5\r\n\r\nwho", d, r.key)
		r.must(c.CloseWrite())
		b, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(b), "ended early") {
			t.Fatalf("%v %s", err, b)
		}
		c.Close()
	}
	if has, _ := r.blobs.Has(t.Context(), []domain.Digest{d}); has[0] {
		t.Error("half a part is stored")
	}
	if a := r.call("PUT", "/blobs/"+string(d), r.key, "whole"); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestMissing(t *testing.T) {
	r := newRig(t, nil)
	r.must(r.blobs.Put(t.Context(), blob.Sum([]byte("a")), []byte("a")))
	ask := func(n int) answer {
		q := map[string][]domain.Digest{}
		for i := range n {
			q["digests"] = append(q["digests"], blob.Sum([]byte(string(rune('a'+i)))))
		}
		return r.call("POST", "/blobs/missing", r.key, q)
	}
	var reply struct{ Missing []domain.Digest }
	r.must(json.Unmarshal(ask(3).body, &reply))
	if len(reply.Missing) != 2 || reply.Missing[0] != blob.Sum([]byte("b")) {
		t.Errorf("%v", reply.Missing)
	}
	if a := ask(256); a.status != 200 {
		t.Errorf("at the limit: %d %s", a.status, a.body)
	}
	ask(257).refused(t, 400, domain.KindInvalid, "")
	if a := r.call("POST", "/blobs/missing", r.key, `{}`); string(a.body) != "{\"missing\":[]}\n" {
		t.Errorf("nothing asked: %s", a.body)
	}
	r.call("POST", "/blobs/missing", r.key, `{"digests":["../x"]}`).refused(t, 400, domain.KindInvalid, "not a SHA-256")
	r.call("POST", "/blobs/missing", r.key, `[`).refused(t, 400, domain.KindInvalid, "not JSON")
	r.call("POST", "/blobs/missing", r.key, `{"digests":["`+strings.Repeat("0", 1<<16)+`"]}`).refused(t, 400, domain.KindInvalid, "")
}

// A stored part that is damaged is told by name, and never sent.
func TestDamagedPart(t *testing.T) {
	r := newRig(t, nil)
	d := blob.Sum([]byte("part"))
	r.must(r.blobs.Put(t.Context(), d, []byte("part")))
	r.blobs.Corrupt(d, func(b []byte) []byte { b[0] ^= 1; return b })
	r.call("GET", "/blobs/"+string(d), r.key, nil).refused(t, 502, domain.KindIntegrity, string(d))
}

// readOnly is a hub whose log is damaged.
type readOnly struct{ gateway.Decider }

func (readOnly) ReadOnly() error {
	return domain.Integrity("read log", "first bad sequence 3", "restore it from a backup")
}

// A hub with a damaged log gives out what it has and takes nothing.
func TestReadOnlyHub(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) { c.Hub = readOnly{c.Hub} })
	d := blob.Sum([]byte("part"))
	r.must(r.blobs.Put(t.Context(), d, []byte("part")))
	if a := r.call("GET", "/blobs/"+string(d), r.key, nil); string(a.body) != "part" {
		t.Errorf("GET: %d %s", a.status, a.body)
	}
	r.call("PUT", "/blobs/"+string(d), r.key, "part").refused(t, 502, domain.KindIntegrity, "first bad sequence 3")
	if a := r.call("GET", "/healthz", "", nil); a.status != 503 || string(a.body) != "read-only\n" {
		t.Errorf("health: %d %s", a.status, a.body)
	}
	var v gateway.Verified
	r.api("POST", "/api/v1/log/verify", nil, &v)
	if !v.OK || !strings.Contains(v.ReadOnly, "sequence 3") {
		t.Errorf("verify: %+v", v)
	}
}
