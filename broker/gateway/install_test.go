package gateway_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
)

// The program is open to everybody: one place that fetches it again and again leaves the uplink to others.
func TestDownloadsAreBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tensorturn")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 256<<20); err != nil { // more than sockets hold
		t.Fatal(err)
	}
	r := newRig(t, func(c *gateway.Config) { c.Binary = file })
	var open []*http.Response
	for range 4 {
		resp, err := r.http.Get("https://" + r.addr + "/install/tensorturn")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		open = append(open, resp)
	}
	r.call("GET", "/install/tensorturn", "", nil).refused(t, 503, domain.KindUnavailable, "too often")
	for _, resp := range open {
		resp.Body.Close()
	}
}
