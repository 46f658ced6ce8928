package main

import "testing"

// The hub listens where machines are told to reach it, unless it is told otherwise.
func TestListenAt(t *testing.T) {
	for _, c := range [][3]string{
		{"", "", ":7443"}, {"", "https://hub.example.org", ":7443"}, {"", "https://hub.example.org:7943", ":7943"},
		{"127.0.0.1:1", "https://hub.example.org:7943", "127.0.0.1:1"}, {"", "::no url::", ":7443"},
	} {
		if got := listenAt(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
