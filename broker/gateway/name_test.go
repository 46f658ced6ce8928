package gateway

import (
	"testing"

	"tensorturn/domain"
)

func TestReadableID(t *testing.T) {
	const fresh = "m-01m8pgnm41mc5a4naj8c901x6a"
	for _, c := range []struct{ name, want string }{
		{"laptop", "laptop-901x6a"},
		{"My 3090.home", "my-3090-home-901x6a"},
		{"", "machine-901x6a"},
		{"日本", "machine-901x6a"},
		{"--", "machine-901x6a"},
		{"a-very-long-name-that-goes-on-and-on", "a-very-long-name-that-go-901x6a"},
	} {
		got := readableID(c.name, "machine", tailOf(fresh))
		if got != c.want || !domain.ValidID(got) {
			t.Errorf("%q: %q, want %q", c.name, got, c.want)
		}
	}
}
