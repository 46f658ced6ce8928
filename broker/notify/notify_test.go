package notify_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"tensorturn/broker/notify"
)

// A manager's socket hears what systemd documents, word for word.
func TestWhatTheManagerHears(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	env := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "42"}
	n := notify.FromEnvironment(func(k string) string { return env[k] }, 42)
	if n.Watchdog != 90*time.Second {
		t.Errorf("watchdog %s", n.Watchdog)
	}
	if other := notify.FromEnvironment(func(k string) string { return env[k] }, 43); other.Watchdog != 0 {
		t.Errorf("the watchdog of another process is heeded: %s", other.Watchdog)
	}
	b := make([]byte, 256)
	for _, c := range []struct {
		say  func()
		want string
	}{
		{n.Ready, "READY=1"}, {n.Alive, "WATCHDOG=1"}, {n.Stopping, "STOPPING=1"},
		{func() { n.Status("ready,\nREADY=0 is no second line") }, "STATUS=ready, READY=0 is no second line"},
	} {
		c.say()
		l.SetReadDeadline(time.Now().Add(5 * time.Second))
		k, err := l.Read(b)
		if err != nil || string(b[:k]) != c.want {
			t.Errorf("heard %q %v, want %q", b[:k], err, c.want)
		}
	}
}

// Without a manager nothing is said, and one that has gone away is no trouble.
func TestNobodyListens(t *testing.T) {
	var none notify.Notifier
	none.Ready()
	gone := notify.FromEnvironment(func(k string) string { return map[string]string{"NOTIFY_SOCKET": "/nonexistent/socket"}[k] }, 1)
	gone.Alive()
	if none.Watchdog != 0 || gone.Watchdog != 0 {
		t.Error("a watchdog without a manager")
	}
}
