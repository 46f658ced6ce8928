package gateway

import (
	"net"
	"net/http"
	"testing"
	"time"

	"tensorturn/domain"
)

func TestAdmission(t *testing.T) {
	a := newAdmission(3, 2)
	type step struct {
		from string
		ok   bool
	}
	var leave []func()
	for i, s := range []step{{"10.0.0.1:1", true}, {"10.0.0.1:2", true}, {"10.0.0.1:3", false}, {"[fe80::1]:4", true}, {"10.0.0.2:5", false}} {
		release, ok := a.enter(s.from)
		if ok != s.ok {
			t.Fatalf("step %d from %s: %v", i, s.from, ok)
		}
		if ok {
			leave = append(leave, release)
		}
	}
	leave[0]()
	if _, ok := a.enter("10.0.0.2:6"); !ok {
		t.Error("a place came free and nobody may have it")
	}
	leave[1]()
	leave[2]()
	if len(a.byIP) != 1 || a.all != 1 {
		t.Errorf("what left is still counted: %v %d", a.byIP, a.all)
	}
}

// Of IPv6 a network of 2^64 addresses is one place to come from: any rented machine has one.
func TestAdmissionBySource(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "[::ffff:10.0.0.1]:2": "10.0.0.1", "[2001:db8:1:2::5]:3": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:4": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64", "pipe": "pipe",
	} {
		if got := sourceOf(remote); got != want {
			t.Errorf("%s is counted by %s, want %s", remote, got, want)
		}
	}
}

// Connections beyond the limit are closed unread; one that became a WebSocket counts no more.
func TestConnectionsAreBounded(t *testing.T) {
	c := newConnections(newAdmission(10, 2))
	pipes := make([]net.Conn, 4)
	for i := range pipes {
		mine, theirs := net.Pipe()
		defer mine.Close()
		pipes[i] = theirs
	}
	closed := func(n net.Conn) bool {
		return n.SetDeadline(time.Time{}) != nil
	}
	for _, p := range pipes[:3] {
		c.changed(p, http.StateNew)
	}
	if closed(pipes[0]) || closed(pipes[1]) || !closed(pipes[2]) {
		t.Error("the third connection of an address must be closed, and only it")
	}
	c.changed(pipes[2], http.StateClosed) // the server says so of the refused one too
	c.changed(pipes[0], http.StateHijacked)
	c.changed(pipes[0], http.StateClosed)
	c.changed(pipes[3], http.StateNew)
	if closed(pipes[3]) || c.all != 2 {
		t.Errorf("%d are counted", c.all)
	}
}

var callers = []domain.MachineID{"b", "c", "d", "e"}

func TestPartsInFlightAreBounded(t *testing.T) {
	p := newPartsInFlight()
	var leave []func()
	for range maxPartsBy {
		release, err := p.enter("a")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, release)
	}
	if _, err := p.enter("a"); err == nil {
		t.Error("one machine holds more than its share")
	}
	for i := range maxParts - maxPartsBy {
		if _, err := p.enter(callers[i%len(callers)]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.enter("z"); err == nil {
		t.Error("there are more parts in memory than the limit")
	}
	for _, release := range leave {
		release()
	}
	if _, err := p.enter("z"); err != nil || p.by["a"] != 0 {
		t.Errorf("what left is still counted: %v", err)
	}
}
